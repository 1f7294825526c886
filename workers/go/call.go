package popstream

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"popstream/api"
)

// Call is what a handler is given. Its methods may be called from any goroutine until the handler
// has returned; later calls change nothing.
type Call struct {
	AgendaID   string
	CustomerID string
	InsightID  string
	LinkID     string // empty for none
	Attempt    int    // of the agenda, from 1; above 1, an earlier one failed or was lost
	Tries      int    // of this operation in this attempt, from 1
	Name       string // of the operation
	Type       string
	Params     map[string]any     // the operation's settings, as submitted
	Payload    json.RawMessage    // its input, all references replaced
	Prior      *api.PriorProgress // how far an earlier attempt was; nil if none was

	attempt   *attempt
	operation *operation
}

// Bind decodes the payload, numbers into interfaces as json.Number. Its error is final: the same
// payload would not fit the next time either.
func (c *Call) Bind(into any) error {
	if err := decode(c.Payload, into); err != nil {
		return Final("the payload does not fit: %w", err)
	}
	return nil
}

// Report says how far the operation is, in per cent; call it as often as you like.
func (c *Call) Report(percent float64, message string) {
	c.change(func(one *operation) {
		one.percent, one.message = min(100, max(0, percent)), brief(message, maxMessage)
	})
}

// Note adds a diagnostic to the operation; the newest ten are kept.
func (c *Call) Note(message, code string, detail any) {
	c.change(func(one *operation) { one.note(message, code, detail) })
}

func (c *Call) change(apply func(*operation)) {
	c.attempt.mu.Lock()
	defer c.attempt.mu.Unlock()
	if c.operation.state == running && c.operation.tries == c.Tries {
		apply(c.operation)
		c.attempt.markChanged(c.operation)
	}
}

// Append adds operations to the running agenda, which run in this attempt. Appending the same
// again changes nothing. One that is not sound is a [FinalError], and none is added.
func (c *Call) Append(ctx context.Context, operations ...api.Operation) error {
	documents := make([]map[string]any, len(operations))
	for i, one := range operations {
		encoded, err := json.Marshal(one)
		if err == nil {
			err = decode(encoded, &documents[i])
		}
		if err != nil {
			return Final("operation %q is not JSON: %w", one.Name, err)
		}
	}
	added := &api.AppendRequest{By: c.Name, Operations: documents}
	if _, err := c.attempt.sendProgress(ctx, nil, added); err != nil {
		if problem, ok := err.(*Problem); ok {
			return &FinalError{problem}
		}
		return err
	}
	c.attempt.add(operations)
	return nil
}

// CompletionToken makes a token by which this operation can be completed from outside, once and
// within so long. Hand it over and return a [NotYet] of the kind completion with it.
func (c *Call) CompletionToken(ctx context.Context, within time.Duration) (string, error) {
	seconds := float32(within.Seconds())
	request := api.CompletionTokenRequest{
		LeaseToken: &c.attempt.pulled.LeaseToken, Operation: c.Name, WithinS: &seconds,
	}
	transport := c.attempt.worker.api
	var made api.CompletionToken
	err := transport.send(ctx, requestTimeout, &made, func(ctx context.Context) (*http.Response, error) {
		return transport.client.MakeCompletionToken(ctx, nil, request)
	})
	return made.Token, err
}

func decode(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode(into)
}

// invoke runs a handler; if its context ends it has a while to return, then it is abandoned.
func invoke(ctx context.Context, handler Handler, call *Call) (result any, err error, abandoned bool) {
	type outcome struct {
		result any
		err    error
	}
	ended := make(chan outcome, 1)
	go func() {
		defer func() {
			if reason := recover(); reason != nil {
				ended <- outcome{nil, fmt.Errorf("the handler panicked: %v", reason)}
			}
		}()
		result, err := handler(ctx, call)
		ended <- outcome{result, err}
	}()
	select {
	case one := <-ended:
		return one.result, one.err, false
	case <-ctx.Done():
	}
	select {
	case one := <-ended:
		return one.result, one.err, false
	case <-time.After(abandonAfter):
		return nil, context.Cause(ctx), true
	}
}
