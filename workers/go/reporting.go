package popstream

import (
	"context"
	"errors"
	"net/http"
	"time"

	"popstream/api"
)

const (
	reportEvery    = 500 * time.Millisecond // at most so often
	maxReportBytes = 500_000                // of results in one request
)

// keepReporting reports what changes, and renews the lease, until the context ends. It cancels the
// attempt if the API wants it to stop, or refuses its reports.
func (a *attempt) keepReporting(ctx context.Context, cancel context.CancelCauseFunc) {
	renewEvery := time.Duration(a.pulled.LeaseMs) * time.Millisecond / 3
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(renewEvery):
		case <-a.reported:
			select { // for what changes meanwhile
			case <-ctx.Done():
				return
			case <-time.After(min(reportEvery, renewEvery)):
			}
		}
		changed, _ := a.takeChanges()
		acknowledged, err := a.sendProgress(ctx, changed, nil)
		var refused *Problem
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && acknowledged.Stop != nil:
			reason, _ := acknowledged.Stop.(string)
			cancel(&StopError{StopReason(reason), "the agenda is " + reason})
			return
		case errors.As(err, &refused) && refused.isLeaseLost():
			cancel(&StopError{Outdated, "the lease is lost: " + refused.Error()})
			return
		case err != nil:
			cancel(err)
			return
		}
	}
}

// sendProgress reports operations, or appends others; with neither it renews the lease alone.
// What could not be sent counts as not reported.
func (a *attempt) sendProgress(
	ctx context.Context, changed []*operation, added *api.AppendRequest,
) (api.ReportAcknowledgement, error) {
	id, number, token := a.pulled.AgendaID, a.pulled.Attempt, a.pulled.LeaseToken
	transport := a.worker.api
	request := func(ctx context.Context) (*http.Response, error) {
		body := api.Heartbeat{PullerID: a.worker.pullerID, LeaseToken: token}
		return transport.client.RenewAttempt(ctx, id, number, nil, body)
	}
	if len(changed) > 0 || added != nil {
		reports := a.reportsOf(changed)
		body := api.ProgressReport{
			PullerID: a.worker.pullerID, LeaseToken: token, Operations: &reports, Append: added,
		}
		request = func(ctx context.Context) (*http.Response, error) {
			return transport.client.ReportProgress(ctx, id, number, nil, body)
		}
	}
	var acknowledged api.ReportAcknowledgement
	err := transport.send(ctx, requestTimeout, &acknowledged, request)
	if err != nil {
		a.putBack(changed)
	}
	return acknowledged, err
}

// complete reports the end, with all that was not reported yet.
func (a *attempt) complete(ctx context.Context, end api.Completion) error {
	end.PullerID, end.LeaseToken = a.worker.pullerID, a.pulled.LeaseToken
	changed, isAll := a.takeChanges()
	for !isAll {
		if _, err := a.sendProgress(ctx, changed, nil); err != nil {
			return err
		}
		changed, isAll = a.takeChanges()
	}
	reports := a.reportsOf(changed)
	end.Operations = &reports
	err := a.sendEnd(ctx, end)
	var refused *Problem
	if errors.As(err, &refused) && !refused.isLeaseLost() {
		// The lease is not kept for an end that cannot be recorded.
		message, retryable := brief("the end was refused: "+refused.Error(), maxMessage), true
		return a.sendEnd(ctx, api.Completion{
			PullerID: end.PullerID, LeaseToken: end.LeaseToken,
			Outcome: api.CompletionOutcomeFailed, Message: &message, Retryable: &retryable,
		})
	}
	return err
}

func (a *attempt) sendEnd(ctx context.Context, end api.Completion) error {
	transport := a.worker.api
	var acknowledged api.ReportAcknowledgement
	return transport.send(ctx, requestTimeout, &acknowledged, func(ctx context.Context) (*http.Response, error) {
		return transport.client.CompleteAttempt(ctx, a.pulled.AgendaID, a.pulled.Attempt, nil, end)
	})
}

// markChanged has an operation reported; the lock is held.
func (a *attempt) markChanged(one *operation) {
	one.hasChanged = true
	notify(a.reported)
}

// takeChanges are operations to report, as many as one request holds, and whether that is all.
func (a *attempt) takeChanges() (changed []*operation, isAll bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	bytes := 0
	for _, one := range a.operations {
		if !one.hasChanged {
			continue
		}
		bytes += len(one.result) + 4*len(one.message) + 1_000
		if len(changed) > 0 && bytes > maxReportBytes {
			notify(a.reported)
			return changed, false
		}
		one.hasChanged = false
		changed = append(changed, one)
	}
	return changed, true
}

func (a *attempt) putBack(changed []*operation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range changed {
		a.markChanged(one)
	}
}

func (a *attempt) reportsOf(changed []*operation) []api.OperationReport {
	a.mu.Lock()
	defer a.mu.Unlock()
	reports := make([]api.OperationReport, len(changed))
	for i, one := range changed {
		reports[i] = one.report()
	}
	return reports
}
