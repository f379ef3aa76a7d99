// The program cron runs a job at each full hour, on one of the machines that run
// this program.
package main

import (
	"context"
	"errors"
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
	hold   = time.Minute // more than twice the difference between clocks, and short compared with period
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := dlock.Open("mem", "")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	run(ctx, client.RWMutex("cron/report"), report)
}

func report(ctx context.Context, tick time.Time) error {
	log.Printf("the report of %s", tick.Format(time.RFC3339))
	return ctx.Err() // not nil if the lock was lost
}

type job func(ctx context.Context, tick time.Time) error

// run calls the job once per period, on one of the machines, until ctx ends.
func run(ctx context.Context, m *dlock.RWMutex, f job) {
	for {
		tick := time.Now().Truncate(period).Add(period)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(tick)):
		}
		if err := once(ctx, m, tick, f); err != nil && !errors.Is(err, dlock.ErrLocked) {
			log.Printf("cron: %v", err)
		}
	}
}

// once calls the job unless another machine has called it for this tick. In
// that case it returns ErrLocked.
func once(ctx context.Context, m *dlock.RWMutex, tick time.Time, f job) (err error) {
	// A machine that is late must not run the job: the lock may be free again
	// because another machine is done.
	inTime, cancel := context.WithDeadline(ctx, tick.Add(hold/2))
	defer cancel()
	lock, err := m.TryLock(inTime)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	kept := time.After(hold)
	err = f(lock.Context(ctx), tick)
	select {
	case <-kept: // keep the lock, so that a machine whose clock is behind finds it taken
	case <-ctx.Done():
	}
	return err
}
