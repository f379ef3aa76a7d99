// The program service runs the jobs in a directory, together with all other
// processes of this program. A job is a file, which is renamed when it is done.
// After SIGTERM the program finishes the jobs that it has begun.
package main

import (
	"context"
	"errors"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/contrib/sqldriver/sqlite"
)

// grace limits jobs after SIGTERM. Kubernetes sends SIGKILL after 30 s by
// default.
const grace = 20 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err) // status 1
	}
}

func run(ctx context.Context, dsn, dir string) error {
	client, err := dlock.Open("sqlite", dsn)
	if err != nil {
		return err
	}
	defer client.Close()
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() { work(ctx, client, dir) })
	}

	<-ctx.Done() // SIGTERM: from now on, no job begins
	log.Print("stopping")
	limit, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	err = client.Shutdown(limit) // waits for the jobs, then frees all locks at once
	// After an error, the jobs end because their locks are lost.
	workers.Wait()
	return err
}

func work(ctx context.Context, client *dlock.Client, dir string) {
	for ctx.Err() == nil {
		jobs, err := filepath.Glob(filepath.Join(dir, "*.job"))
		for _, job := range jobs {
			err = errors.Join(err, do(ctx, client, job))
		}
		if err != nil {
			log.Print(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// do runs one job, unless another worker is running it.
func do(ctx context.Context, client *dlock.Client, job string) (err error) {
	lock, err := client.RWMutex("job/" + filepath.Base(job)).TryLock(ctx) // fails after SIGTERM
	switch {
	case err == nil:
	case errors.Is(err, dlock.ErrLocked), ctx.Err() != nil:
		return nil
	default:
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	// A job that has begun outlives ctx. It ends early only if its lock is lost.
	return handle(lock.Context(context.WithoutCancel(ctx)), job)
}

// handle runs a job, unless its file is gone because another worker was faster.
func handle(ctx context.Context, job string) error {
	text, err := os.ReadFile(job)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err = errors.Join(err, dlock.FromContext(ctx).Err()); err != nil {
		return err // ctx.Err() may still be nil: see longstep
	}
	log.Printf("%s: %s", filepath.Base(job), text)
	return os.Rename(job, job+".done")
}
