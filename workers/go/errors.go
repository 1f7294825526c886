package popstream

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"popstream/api"
)

// StopReason is why a handler is to stop.
type StopReason string

// Its agenda was cancelled or has expired; its attempt is over, another worker may have it; its
// worker stops; its operation's timeout_s is over.
const (
	Cancelled      StopReason = "cancelled"
	Expired        StopReason = "expired"
	Outdated       StopReason = "outdated"
	PullerStopping StopReason = "puller_stopping"
	Timeout        StopReason = "timeout"
)

// StopError is the cause of a handler's context that has ended.
type StopError struct {
	Reason  StopReason
	message string
}

func (s *StopError) Error() string { return s.message }

// isStopped tells whether an error is a StopError for one of the reasons.
func isStopped(err error, reasons ...StopReason) bool {
	var stop *StopError
	return errors.As(err, &stop) && slices.Contains(reasons, stop.Reason)
}

// FinalError says that trying again cannot help. Any other error may be tried again.
type FinalError struct{ Err error }

func (f *FinalError) Error() string { return f.Err.Error() }
func (f *FinalError) Unwrap() error { return f.Err }

// Final wraps an error for which trying again cannot help.
func Final(format string, arguments ...any) error {
	return &FinalError{fmt.Errorf(format, arguments...)}
}

// NotYet says that what an operation needs is not there: the attempt ends without failing, and the
// operation is called again in a later one.
type NotYet struct {
	After   time.Duration // until the next look, a second at least
	Message string        // what it waits for, for people
	// Kind is what ends the wait from outside, before After is over: nothing if it is empty, else
	// api.WaitReportKindSignal, api.WaitReportKindApproval, or api.WaitReportKindCompletion.
	Kind            api.WaitReportKind
	Signal          string // with the kind signal: its name
	CompletionToken string // with the kind completion: see [Call.CompletionToken]
}

func (n *NotYet) Error() string { return "not yet: " + n.Message }

// Problem is an error of the API, as RFC 9457 has it.
type Problem struct {
	api.Problem
	retryAfter time.Duration
}

func (p *Problem) Error() string {
	text := fmt.Sprintf("%d %s: %s", p.Status, p.Code, p.Detail)
	if p.Issues != nil {
		for _, issue := range *p.Issues {
			text += fmt.Sprintf("; %s = %s: %s", issue.Field, issue.Value, issue.Message)
		}
	}
	return text
}

// isLeaseLost tells whether the attempt is over, or its worker may report on it no more.
func (p *Problem) isLeaseLost() bool {
	switch p.Status {
	case http.StatusConflict, http.StatusNotFound, http.StatusUnauthorized, http.StatusForbidden:
		return true
	}
	return false
}

// isFinal tells whether trying an operation again cannot help, after this error of a handler.
func isFinal(err error) bool {
	var final *FinalError
	return errors.As(err, &final)
}

const (
	codeFinal     = "operation_final"
	codeRetryable = "operation_retryable"
)

func codeOf(err error) string {
	if isFinal(err) {
		return codeFinal
	}
	return codeRetryable
}
