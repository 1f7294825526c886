package popstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"popstream/api"
)

const priorEvery = time.Second // that the results of earlier attempts are looked for

// attempt runs the operations of one agenda that was pulled. Its lock guards all that follows it.
type attempt struct {
	worker   *Worker
	pulled   api.PulledAgenda
	wake     chan struct{} // an operation ended, or others were added
	reported chan struct{} // there is something to report
	hasEnded context.Context
	setEnded context.CancelFunc // something failed: nothing more is begun

	mu         sync.Mutex
	operations []*operation
	byName     map[string]*operation
	names      map[string]any // what references may name
	failures   []failure
	waits      []api.WaitReport
	spentS     map[string]any
	active     int
}

type failure struct {
	message    string
	isFinal    bool
	diagnostic *api.DiagnosticReport
}

func newAttempt(worker *Worker, pulled api.PulledAgenda) *attempt {
	hasEnded, setEnded := context.WithCancel(context.Background())
	return &attempt{
		worker: worker, pulled: pulled, hasEnded: hasEnded, setEnded: setEnded,
		wake: make(chan struct{}, 1), reported: make(chan struct{}, 1),
		byName: map[string]*operation{}, spentS: map[string]any{},
		names: map[string]any{"pop.agendaId": pulled.AgendaID, "pop.customerId": pulled.CustomerID},
	}
}

// run takes the attempt to its end and reports it; its handlers are cancelled with `work`, and
// nothing is sent any more once `reports` has ended.
func (a *attempt) run(work, reports context.Context) {
	defer a.setEnded()
	ctx, cancel := context.WithCancelCause(work)
	defer cancel(nil)
	reporting, stopReporting := context.WithCancel(reports)
	defer stopReporting()
	var reporter sync.WaitGroup
	reporter.Go(func() { a.keepReporting(reporting, cancel) })
	if err := a.readPrior(ctx); err != nil {
		a.fail(nil, fmt.Errorf("the results of earlier attempts cannot be read: %w", err))
	}
	a.runOperations(ctx)
	stopReporting()
	reporter.Wait()
	log := a.worker.log.With("agenda_id", a.pulled.AgendaID, "attempt", a.pulled.Attempt)
	cause := context.Cause(ctx)
	if isStopped(cause, Outdated) {
		log.Info("agenda.lease_lost", "reason", cause)
		return
	}
	end := a.end(cause)
	if err := a.complete(reports, end); err != nil {
		log.Warn("agenda.end_not_reported", "outcome", end.Outcome, "error", err)
		return
	}
	log.Info("agenda."+string(end.Outcome), "message", end.Message)
}

// readPrior takes over what earlier attempts left, waiting until it can be read.
func (a *attempt) readPrior(ctx context.Context) error {
	progress, transport := a.pulled.Progress, a.worker.api
	for a.pulled.Attempt > 1 && (progress == nil || progress.Attempt < a.pulled.Attempt) {
		if progress != nil {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(priorEvery):
			}
		}
		progress = &api.AgendaProgress{}
		err := transport.send(ctx, requestTimeout, progress, func(ctx context.Context) (*http.Response, error) {
			return transport.client.GetAgendaProgress(ctx, a.pulled.AgendaID, nil)
		})
		if err != nil {
			return err
		}
	}
	a.add(a.pulled.Agenda.Operations)
	if progress == nil {
		return nil
	}
	for _, one := range progress.Appended {
		var appended api.Operation
		encoded, err := json.Marshal(one.Operation)
		if err == nil {
			err = decode(encoded, &appended)
		}
		if err != nil {
			return err
		}
		a.add([]api.Operation{appended})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, view := range progress.Operations {
		if one := a.byName[view.Name]; one != nil {
			a.takeOver(one, view, progress.Attempt)
		}
	}
	return nil
}

// takeOver sets one operation to what earlier attempts, or decisions from outside, left of it.
func (a *attempt) takeOver(one *operation, view api.OperationView, attempt int) {
	one.prior = view.Prior
	switch {
	case view.State == string(succeeded):
		one.state, one.isDone = succeeded, true
		a.names[one.Name+outputSuffix] = view.Result
	case view.State == string(failed) && attempt == a.pulled.Attempt:
		a.failLocked(one, decided(view))
	case view.Wait != nil && view.Wait.Kind == string(api.WaitReportKindCompletion):
		// Handed over, and not completed: its handler is not called again.
		a.defers(one, &NotYet{Kind: api.WaitReportKindCompletion, Message: "it is completed elsewhere"})
	}
}

// decided is why an operation failed of which that was decided from outside, while it waited.
func decided(view api.OperationView) error {
	if count := len(view.Diagnostics); count > 0 && view.Diagnostics[count-1].Code != nil {
		code := *view.Diagnostics[count-1].Code
		if code == codeRetryable || code == "hand_over_timed_out" {
			return errors.New(view.Message)
		}
	}
	return Final("%s", view.Message)
}

// add takes operations that are new to the agenda; of one name, ignoring case, the first counts.
func (a *attempt) add(operations []api.Operation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, known := range operations {
		isTaken := func(one *operation) bool { return strings.EqualFold(one.Name, known.Name) }
		if !slices.ContainsFunc(a.operations, isTaken) {
			one := newOperation(known)
			a.operations = append(a.operations, one)
			a.byName[known.Name] = one
		}
	}
	notify(a.wake)
}

// runOperations returns once nothing runs and nothing more can be begun.
func (a *attempt) runOperations(ctx context.Context) {
	for {
		a.mu.Lock()
		a.begin(ctx)
		active := a.active
		a.mu.Unlock()
		if active == 0 {
			return
		}
		<-a.wake
	}
}

// begin starts what is ready, unless something failed or the attempt is cancelled.
func (a *attempt) begin(ctx context.Context) {
	for _, one := range a.operations {
		if a.worker.handlers[one.Type] == nil && !one.isDone {
			a.failLocked(one, Final("operation type %q has no handler here; register one, or correct the type or the insight's mappers", one.Type))
		}
	}
	for _, one := range a.operations {
		if len(a.failures) > 0 || ctx.Err() != nil || a.active >= parallelLimit {
			return
		}
		if one.isDone || one.state != waiting || !a.isReady(one) {
			continue
		}
		now := time.Now().UTC()
		one.state, one.startedAt = running, &now
		a.markChanged(one)
		a.active++
		go a.runOperation(ctx, one)
	}
}

func (a *attempt) isReady(one *operation) bool {
	for name := range one.dependsOn {
		if known := a.byName[name]; known == nil || known.state != succeeded {
			return false
		}
	}
	return true
}

func (a *attempt) runOperation(ctx context.Context, one *operation) {
	result, err := a.tryUntilDone(ctx, one)
	a.mu.Lock()
	defer a.mu.Unlock()
	var notYet *NotYet
	switch {
	case err == nil:
		one.result = result
		one.end(succeeded, "")
		var value any
		if result != nil {
			err = decode(result, &value)
		}
		a.names[one.Name+outputSuffix] = value
		a.markChanged(one)
	case ctx.Err() != nil:
		one.end(failed, "stopped before it ended")
		a.markChanged(one)
	case errors.As(err, &notYet):
		a.defers(one, notYet)
	default:
		a.failLocked(one, err)
	}
	a.active--
	notify(a.wake)
}

// tryUntilDone tries an operation as often as it allows within one attempt.
func (a *attempt) tryUntilDone(ctx context.Context, one *operation) (json.RawMessage, error) {
	for {
		began := time.Now()
		result, err, abandoned := a.try(ctx, one)
		a.mu.Lock()
		spent, _ := a.spentS[one.Type].(float64)
		a.spentS[one.Type] = spent + time.Since(began).Seconds()
		var notYet *NotYet
		isOver := err == nil || errors.As(err, &notYet) || ctx.Err() != nil || one.maxTries() == 1
		if !isOver {
			one.note(err.Error(), codeOf(err), map[string]any{"try": one.tries, "max_attempts": one.maxTries()})
			isOver = one.tries >= one.maxTries() || isFinal(err) || abandoned
		}
		pause := one.pause()
		a.mu.Unlock()
		if isOver {
			return result, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-a.hasEnded.Done():
			return nil, err
		case <-time.After(pause):
		}
		a.mu.Lock()
		one.tries++
		one.percent, one.message = 0, ""
		a.markChanged(one)
		a.mu.Unlock()
	}
}

func (a *attempt) try(ctx context.Context, one *operation) (json.RawMessage, error, bool) {
	call, err := a.callOf(one)
	if err != nil {
		return nil, &FinalError{err}, false
	}
	if one.TimeoutS != nil {
		limit := time.Duration(float64(*one.TimeoutS) * float64(time.Second))
		over := &StopError{Timeout, fmt.Sprintf("timeout_s = %g: it ran longer", *one.TimeoutS)}
		limited, cancel := context.WithTimeoutCause(ctx, limit, over)
		defer cancel()
		ctx = limited
	}
	returned, err, abandoned := invoke(ctx, a.worker.handlers[one.Type], call)
	if cause := context.Cause(ctx); isStopped(cause, Timeout) {
		return nil, cause, abandoned
	}
	if err != nil {
		return nil, err, abandoned
	}
	result, err := encodeResult(returned)
	return result, err, false
}

func (a *attempt) callOf(one *operation) (*Call, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	call := &Call{
		AgendaID: a.pulled.AgendaID, CustomerID: a.pulled.CustomerID, InsightID: a.pulled.InsightID,
		Attempt: a.pulled.Attempt, Tries: one.tries, Name: one.Name, Type: one.Type, Prior: one.prior,
		Payload: json.RawMessage("null"), attempt: a, operation: one,
	}
	if a.pulled.Agenda.LinkID != nil {
		call.LinkID = *a.pulled.Agenda.LinkID
	}
	if one.Params != nil {
		call.Params = *one.Params
	}
	if one.Payload == nil {
		return call, nil
	}
	a.names["pop.operationName"] = one.Name
	payload, err := resolve(*one.Payload, a.names)
	if err == nil {
		call.Payload, err = json.Marshal(payload)
	}
	return call, err
}

// defers lets an operation wait for something, without a runner.
func (a *attempt) defers(one *operation, notYet *NotYet) {
	one.end(waiting, notYet.Message)
	a.markChanged(one)
	report := api.WaitReport{Name: one.Name}
	if notYet.After > 0 {
		after := float32(min(max(notYet.After.Seconds(), 1), 31_622_400))
		report.RecheckS = &after
	}
	if notYet.Message != "" {
		message := brief(notYet.Message, maxMessage)
		report.Message = &message
	}
	if notYet.Kind != "" {
		report.Kind = &notYet.Kind
	}
	if notYet.Signal != "" {
		report.Signal = &notYet.Signal
	}
	if notYet.CompletionToken != "" {
		report.CompletionToken = &notYet.CompletionToken
	}
	a.waits = append(a.waits, report)
}

// fail takes note of a failure; of no operation if it is nil.
func (a *attempt) fail(one *operation, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failLocked(one, err)
}

func (a *attempt) failLocked(one *operation, err error) {
	a.setEnded()
	if one == nil {
		a.failures = append(a.failures, failure{err.Error(), isFinal(err), nil})
		return
	}
	one.end(failed, err.Error())
	a.markChanged(one)
	code, detail := codeOf(err), any(map[string]string{"operation": one.Name})
	a.failures = append(a.failures, failure{
		fmt.Sprintf("operation '%s' failed: %s", one.Name, err),
		isFinal(err),
		&api.DiagnosticReport{Message: brief(err.Error(), maxNote), Code: &code, Detail: &detail},
	})
}

// end is how the attempt ended; `cause` is why it was cancelled, if it was.
func (a *attempt) end(cause error) api.Completion {
	a.mu.Lock()
	defer a.mu.Unlock()
	end := api.Completion{Outcome: api.CompletionOutcomeSucceeded, SpentS: &a.spentS}
	isWhole := !slices.ContainsFunc(a.operations, func(one *operation) bool { return one.state != succeeded })
	switch {
	case isStopped(cause, Cancelled, Expired):
		end.Outcome = api.CompletionOutcomeStopped
		return end
	case cause != nil && !isWhole:
		a.failLocked(nil, cause)
	case len(a.failures) == 0 && len(a.waits) == 0 && !isWhole:
		a.failStuck()
	}
	switch {
	case len(a.failures) > 0:
		a.addFailure(&end)
	case len(a.waits) > 0:
		end.Outcome, end.Waits = api.CompletionOutcomeNotYet, &a.waits
	}
	return end
}

// failStuck ends what will never run: what it waits for was appended once, and is no more.
func (a *attempt) failStuck() {
	for _, one := range a.operations {
		if one.isDone {
			continue
		}
		missing := []string{}
		for name := range one.dependsOn {
			if a.byName[name] == nil {
				missing = append(missing, name)
			}
		}
		slices.Sort(missing)
		what := strings.Join(missing, ", ")
		if what == "" {
			what = "one another"
		}
		a.failLocked(one, Final("it waits for %s, which nothing has appended; rerun all operations", what))
	}
}

func (a *attempt) addFailure(end *api.Completion) {
	retryable, message := true, brief(a.failures[0].message, maxMessage)
	diagnostics := []api.DiagnosticReport{}
	for _, one := range a.failures {
		retryable = retryable && !one.isFinal
		if one.diagnostic != nil && len(diagnostics) < maxDiagnostics {
			diagnostics = append(diagnostics, *one.diagnostic)
		}
	}
	end.Outcome = api.CompletionOutcomeFailed
	end.Message, end.Retryable, end.Diagnostics = &message, &retryable, &diagnostics
}

func notify(about chan<- struct{}) {
	select {
	case about <- struct{}{}:
	default:
	}
}
