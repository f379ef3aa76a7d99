// The program once runs a job for each full hour, on one of its machines.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/memdriver" // for real machines: contrib/redisdriver
)

const (
	period = time.Hour
	pause  = time.Minute // before a failed run is tried again
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := dlock.Open("mem", "")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	run(ctx, client.RWMutex("once/report"), report)
}

func report(ctx context.Context, tick time.Time) error {
	log.Printf("the report of %s", tick.Format(time.RFC3339))
	return ctx.Err() // not nil if the lock was lost
}

type job func(ctx context.Context, tick time.Time) error

// run calls the job once per period, on one of the machines, until ctx ends.
func run(ctx context.Context, m *dlock.RWMutex, f job) {
	for ctx.Err() == nil {
		tick := time.Now().Truncate(period)
		_, err := m.Once(ctx, tick, func(ctx context.Context, _ *dlock.Lock) error { return f(ctx, tick) })
		next := tick.Add(period)
		if err != nil && ctx.Err() == nil {
			log.Printf("the run of %s, tried again: %v", tick.Format(time.RFC3339), err)
			next = time.Now().Add(pause)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(next)):
		}
	}
}
