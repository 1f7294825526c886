// Command contract is the worker that the tests of the project hold to the contract of workers.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"popstream"
	"popstream/api"
)

func main() {
	grace, err := time.ParseDuration(os.Getenv("CONTRACT_GRACE_S") + "s")
	if err != nil {
		log.Fatal(err)
	}
	worker, err := popstream.New(os.Getenv("CONTRACT_INSIGHT"), popstream.Options{
		PullerID: os.Getenv("CONTRACT_PULLER_ID"), Concurrency: 4, Grace: grace,
	})
	if err != nil {
		log.Fatal(err)
	}
	worker.Handle("echo", func(_ context.Context, call *popstream.Call) (any, error) {
		return call.Payload, nil
	})
	worker.Handle("count", count)
	worker.Handle("hold", hold)
	worker.Handle("flaky", flaky)
	worker.Handle("refuse", func(context.Context, *popstream.Call) (any, error) {
		return nil, popstream.Final("no such codec")
	})
	worker.Handle("large", func(context.Context, *popstream.Call) (any, error) {
		return strings.Repeat("x", 300_000), nil
	})
	worker.Handle("scan", scan)
	worker.Handle("later", later)
	worker.Handle("hand-over", handOver)
	if err := worker.Run(); err != nil {
		log.Fatal(err)
	}
}

type files struct {
	Log   string `json:"log"`
	Until string `json:"until"`
}

func (f files) write(line string) error {
	file, err := os.OpenFile(f.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(line + "\n")
	return errors.Join(err, file.Close())
}

func (f files) isReleased() bool {
	_, err := os.Stat(f.Until)
	return err == nil
}

func count(_ context.Context, call *popstream.Call) (any, error) {
	var given files
	if err := call.Bind(&given); err != nil {
		return nil, err
	}
	if err := given.write("ran"); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(given.Log)
	return strings.Count(string(text), "\n"), err
}

func hold(ctx context.Context, call *popstream.Call) (any, error) {
	var given files
	if err := call.Bind(&given); err != nil {
		return nil, err
	}
	if err := given.write(fmt.Sprintf("begun %d", call.Attempt)); err != nil {
		return nil, err
	}
	call.Report(40, "page 2 of 5")
	call.Note("it holds", "held", map[string]int{"page": 2})
	for !given.isReleased() {
		select {
		case <-ctx.Done():
			var stop *popstream.StopError
			errors.As(context.Cause(ctx), &stop)
			return nil, errors.Join(given.write("stopped "+string(stop.Reason)), stop)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return map[string]int{"held": call.Attempt}, nil
}

func flaky(_ context.Context, call *popstream.Call) (any, error) {
	var given struct{ Attempts, Tries int }
	if err := call.Bind(&given); err != nil {
		return nil, err
	}
	if call.Attempt <= given.Attempts || call.Tries <= given.Tries {
		return nil, errors.New("the service is away")
	}
	return map[string]int{"attempt": call.Attempt, "tries": call.Tries}, nil
}

func scan(ctx context.Context, call *popstream.Call) (any, error) {
	var given struct{ Operations []api.Operation }
	if err := call.Bind(&given); err != nil {
		return nil, err
	}
	return len(given.Operations), call.Append(ctx, given.Operations...)
}

func later(_ context.Context, call *popstream.Call) (any, error) {
	var given files
	if err := call.Bind(&given); err != nil {
		return nil, err
	}
	if !given.isReleased() {
		return nil, &popstream.NotYet{After: time.Second, Message: "the file is not there"}
	}
	return map[string]int{"attempt": call.Attempt}, nil
}

func handOver(ctx context.Context, call *popstream.Call) (any, error) {
	var given files
	if err := call.Bind(&given); err != nil {
		return nil, err
	}
	token, err := call.CompletionToken(ctx, time.Minute)
	if err != nil {
		return nil, err
	}
	if err := given.write(token); err != nil {
		return nil, err
	}
	return nil, &popstream.NotYet{Kind: api.WaitReportKindCompletion, CompletionToken: token}
}
