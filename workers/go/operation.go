package popstream

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"regexp"
	"time"

	"popstream/api"
)

const (
	waiting   = api.OperationReportStateWaiting
	running   = api.OperationReportStateRunning
	succeeded = api.OperationReportStateSucceeded
	failed    = api.OperationReportStateFailed

	maxResult      = 256 << 10
	maxMessage     = 2_000
	maxNote        = 500
	maxDiagnostics = 10
)

// operation of a running agenda; its attempt's lock guards it.
type operation struct {
	api.Operation
	dependsOn   map[string]bool
	prior       *api.PriorProgress
	hasChanged  bool
	isDone      bool // in this attempt; one that waits for something is, too
	state       api.OperationReportState
	tries       int
	percent     float64
	message     string
	startedAt   *time.Time
	endedAt     *time.Time
	result      json.RawMessage
	diagnostics []api.DiagnosticReport
}

func newOperation(known api.Operation) *operation {
	one := &operation{Operation: known, dependsOn: map[string]bool{}, state: waiting, tries: 1}
	if known.DependsOn != nil {
		for _, name := range *known.DependsOn {
			one.dependsOn[name] = true
		}
	}
	if known.Payload != nil {
		referredOperations(*known.Payload, func(name string) { one.dependsOn[name] = true })
	}
	return one
}

func (o *operation) maxTries() int {
	if o.MaxAttempts == nil {
		return 1
	}
	return *o.MaxAttempts
}

// pause until the next try, after so many that failed.
func (o *operation) pause() time.Duration {
	backoff := api.Backoff{}
	if o.Backoff != nil {
		backoff = *o.Backoff
	}
	first, factor := valueOr(backoff.FirstS, 1), valueOr(backoff.Factor, 2)
	most, jitter := valueOr(backoff.MostS, 300), valueOr(backoff.Jitter, 0.2)
	seconds := min(first*math.Pow(factor, float64(o.tries-1)), most)
	return time.Duration(seconds * (1 - jitter*rand.Float64()) * float64(time.Second))
}

func valueOr(value *float32, otherwise float64) float64 {
	if value == nil {
		return otherwise
	}
	return float64(*value)
}

func (o *operation) note(message, code string, detail any) {
	added := api.DiagnosticReport{Message: brief(message, maxNote)}
	if code != "" {
		added.Code = &code
	}
	if detail != nil {
		added.Detail = &detail
	}
	o.diagnostics = append(o.diagnostics, added)
	o.diagnostics = o.diagnostics[max(0, len(o.diagnostics)-maxDiagnostics):]
}

func (o *operation) end(state api.OperationReportState, message string) {
	now := time.Now().UTC()
	o.state, o.endedAt, o.isDone = state, &now, true
	if message != "" {
		o.message = brief(message, maxMessage)
	}
}

// report is how far it is, as the API takes it.
func (o *operation) report() api.OperationReport {
	percent, message, tries := float32(o.percent), o.message, o.tries
	if o.state == succeeded {
		percent = 100
	}
	report := api.OperationReport{
		Name: o.Name, State: o.state, Percent: &percent, Message: &message, Tries: &tries,
		StartedAt: o.startedAt, EndedAt: o.endedAt,
	}
	if len(o.diagnostics) > 0 {
		diagnostics := append([]api.DiagnosticReport(nil), o.diagnostics...)
		report.Diagnostics = &diagnostics
	}
	if o.result != nil {
		var result any = o.result
		report.Result = &result
	}
	return report
}

// noText matches JSON of a NUL or of half a surrogate pair, which no database keeps.
var noText = regexp.MustCompile(`(?:^|[^\\])(?:\\\\)*\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2})`)

// encodeResult is nil for no result. An error is final.
func encodeResult(value any) (json.RawMessage, error) {
	if value == nil {
		return nil, nil
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, Final("the result, a %T, is not JSON: %w", value, err)
	}
	encoded := bytes.TrimSpace(text.Bytes())
	switch {
	case len(encoded) > maxResult:
		return nil, Final("the result has %d bytes, at most %d are allowed; store it elsewhere and return where it is", len(encoded), maxResult)
	case noText.Match(encoded):
		return nil, Final("the result holds a NUL character or half a surrogate pair, which no database text can; leave it out")
	case string(encoded) == "null":
		return nil, nil
	}
	return encoded, nil
}

// brief cuts a text and leaves out what no database keeps.
func brief(text string, most int) string {
	kept := make([]rune, 0, min(len(text), most))
	for _, letter := range text {
		if letter == 0 {
			continue
		}
		if len(kept) == most {
			return string(kept[:most-1]) + "…"
		}
		kept = append(kept, letter)
	}
	return string(kept)
}
