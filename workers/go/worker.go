// Package popstream runs operations of agendas that it pulls from pop_stream over HTTP.
//
// A [Worker] claims agendas of one insight, runs the operations of each in the order of their
// dependencies, in parallel where they are ready, and reports what becomes of them. While an
// agenda runs its lease is renewed. A worker that is killed loses nothing: once the lease has
// expired another one goes on, with the results of what had succeeded.
//
// Requests and their types are made from the API's OpenAPI document: see the package api.
package popstream

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"popstream/api"
)

//go:generate go tool -modfile=generator.mod oapi-codegen -config api/config.yaml -o api/api.gen.go ../../docs/reference/workers-openapi.json

const (
	pullWait      = 20 * time.Second
	maxPull       = 100
	abandonAfter  = 5 * time.Second // that a cancelled handler has to clean up
	parallelLimit = 64              // operations of one agenda at a time
)

// Handler runs one operation and returns its result, which is encoded as JSON; nil for none.
//
// An error may be tried again, unless it is a [FinalError]; a [NotYet] is no failure. The context
// ends when the handler is to stop; its [context.Cause] is a [*StopError]. A handler that still
// runs five seconds later is abandoned.
type Handler func(ctx context.Context, call *Call) (any, error)

// Options of a worker; the zero value takes all from the environment.
type Options struct {
	URL         string        // of the API; else POP_API_URL, else http://127.0.0.1:8080
	Token       string        // an API key or a JWT with the role pull; else POP_API_TOKEN
	PullerID    string        // shown with what it runs; else made of the host's name
	Concurrency int           // agendas at a time; else 8
	Grace       time.Duration // that running agendas have when the worker stops; else 30 s
	HTTPClient  *http.Client  // else a new one
	Logger      *slog.Logger  // else slog.Default()
}

// Worker serves one insight. Register its handlers, then call Run or Serve, once.
type Worker struct {
	insight     string
	pullerID    string
	concurrency int
	grace       time.Duration
	log         *slog.Logger
	api         *transport
	handlers    map[string]Handler
}

// New makes a worker of an insight.
func New(insight string, options Options) (*Worker, error) {
	log := cmp.Or(options.Logger, slog.Default())
	url := cmp.Or(options.URL, os.Getenv("POP_API_URL"), "http://127.0.0.1:8080")
	token := cmp.Or(options.Token, os.Getenv("POP_API_TOKEN"))
	sender, err := newTransport(url, token, options.HTTPClient, log)
	if err != nil {
		return nil, fmt.Errorf("popstream: the API's URL %q cannot be used: %w", url, err)
	}
	return &Worker{
		insight:     insight,
		pullerID:    cmp.Or(options.PullerID, makePullerID()),
		concurrency: cmp.Or(options.Concurrency, 8),
		grace:       cmp.Or(options.Grace, 30*time.Second),
		log:         log,
		api:         sender,
		handlers:    map[string]Handler{},
	}, nil
}

func makePullerID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	return fmt.Sprintf("%.80s-%d-%.6s", host, os.Getpid(), rand.Text())
}

// Handle registers the handler of an operation type; a later one replaces it.
func (w *Worker) Handle(operationType string, handler Handler) { w.handlers[operationType] = handler }

// Run serves until SIGTERM or SIGINT; see Serve. A second signal ends the process at once.
func (w *Worker) Run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop)
	return w.Serve(ctx)
}

// Serve pulls and runs agendas until the context ends. Then it takes nothing new, and agendas that
// run have the grace to end; what still runs then is cancelled, and follows as another attempt.
//
// It returns an error only if the API refuses to let it pull: the token is unknown, or not for
// this insight. Running agendas have the grace then, too.
func (w *Worker) Serve(ctx context.Context) error {
	if len(w.handlers) == 0 {
		return errors.New("popstream: register a handler before the worker serves")
	}
	work, cancelWork := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancelWork(nil)
	reports, cancelReports := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelReports()
	var running sync.WaitGroup
	w.log.Info("worker.started", "insight_id", w.insight, "puller_id", w.pullerID)
	err := w.pull(ctx, func(pulled api.PulledAgenda, done func()) {
		running.Go(func() {
			defer done()
			newAttempt(w, pulled).run(work, reports)
		})
	})
	w.log.Info("worker.stopping", "insight_id", w.insight, "puller_id", w.pullerID)
	// Twice: what is cancelled has time to clean up, and its end to be reported.
	stopping := time.AfterFunc(w.grace, func() { cancelWork(&StopError{PullerStopping, "puller stopped"}) })
	giveUp := time.AfterFunc(w.grace+2*abandonAfter, cancelReports)
	running.Wait()
	stopping.Stop()
	giveUp.Stop()
	w.log.Info("worker.stopped", "insight_id", w.insight, "puller_id", w.pullerID)
	return err
}

// pull starts agendas, never more than run at once, until the context ends or it is refused.
func (w *Worker) pull(ctx context.Context, start func(api.PulledAgenda, func())) error {
	slots := make(chan struct{}, w.concurrency)
	free := func() { <-slots }
	for {
		count, ok := acquire(ctx, slots)
		if !ok {
			return nil
		}
		waitS := float32(pullWait.Seconds())
		request := api.PullRequest{PullerID: w.pullerID, Count: &count, WaitS: &waitS}
		var pulled api.PulledAgendas
		err := w.api.send(ctx, pullWait+requestTimeout, &pulled, func(ctx context.Context) (*http.Response, error) {
			return w.api.client.PullAgendas(ctx, w.insight, nil, request)
		})
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("popstream: may not pull from insight %q: %w", w.insight, err)
		}
		for range count - len(pulled.Agendas) {
			free()
		}
		for _, one := range pulled.Agendas {
			start(one, free)
		}
	}
}

// acquire waits for a free slot, and takes as many as there are.
func acquire(ctx context.Context, slots chan<- struct{}) (count int, ok bool) {
	select {
	case <-ctx.Done():
		return 0, false
	case slots <- struct{}{}:
	}
	for count = 1; count < maxPull; count++ {
		select {
		case slots <- struct{}{}:
		default:
			return count, ctx.Err() == nil
		}
	}
	return count, ctx.Err() == nil
}
