package popstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"popstream/api"
)

const (
	requestTimeout = 30 * time.Second
	firstPause     = 250 * time.Millisecond
	longestPause   = 30 * time.Second
)

// transport sends requests until they are answered.
type transport struct {
	client *api.Client
	log    *slog.Logger
}

func newTransport(url, token string, doer *http.Client, log *slog.Logger) (*transport, error) {
	authorize := func(_ context.Context, request *http.Request) error {
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		return nil
	}
	doer = cmp.Or(doer, &http.Client{})
	client, err := api.NewClient(url, api.WithHTTPClient(doer), api.WithRequestEditorFn(authorize))
	return &transport{client, log}, err
}

// send repeats a request while the API is away, busy, or says to come back later, and decodes its
// answer. It returns a [*Problem] if the API refuses, or why the context has ended.
func (t *transport) send(
	ctx context.Context,
	timeout time.Duration,
	into any,
	request func(context.Context) (*http.Response, error),
) error {
	for failures := 0; ; failures++ {
		err := sendOnce(ctx, timeout, into, request)
		if ctx.Err() != nil && err != nil {
			return context.Cause(ctx)
		}
		var problem *Problem
		refused := errors.As(err, &problem)
		if err == nil || refused && !isTransient(problem.Status) {
			return err
		}
		pause := min(longestPause, firstPause<<min(failures, 10))
		if refused {
			pause = max(pause, problem.retryAfter)
		}
		pause += rand.N(pause/4 + 1) // #nosec G404: spread, not a secret
		t.log.Warn("api.unavailable", "error", err, "retry_in", pause)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

func sendOnce(
	ctx context.Context,
	timeout time.Duration,
	into any,
	request func(context.Context) (*http.Response, error),
) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	response, err := request(ctx)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return problemOf(response)
	}
	decoder := json.NewDecoder(response.Body)
	decoder.UseNumber() // a payload's numbers stay as they were sent
	return decoder.Decode(into)
}

func problemOf(response *http.Response) error {
	problem := &Problem{}
	body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if json.Unmarshal(body, &problem.Problem) != nil || problem.Code == "" {
		problem.Code, problem.Detail = "unknown", http.StatusText(response.StatusCode)
	}
	problem.Status = response.StatusCode
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
		problem.retryAfter = time.Duration(seconds) * time.Second
	}
	return problem
}

// isTransient tells whether the same request may be answered otherwise later.
func isTransient(status int) bool {
	return status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
}
