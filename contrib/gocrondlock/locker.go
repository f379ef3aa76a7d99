package gocrondlock

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/dlock-go/dlock"
)

// lockWithin limits how long Lock and IsLeader wait for the store.
const lockWithin = 10 * time.Second

// Locker implements [gocron.Locker] and is safe for concurrent use.
type Locker struct {
	client *dlock.Client
	hold   time.Duration

	closed chan struct{} // closed by Close
	mu     sync.Mutex
	ended  bool           // Close was called; guarded by mu
	kept   sync.WaitGroup // locks kept after jobs; Add guarded by mu
}

// NewLocker returns a locker that keeps each lock for at least minHold after it
// was taken: see the package documentation. Close the locker before the client.
func NewLocker(client *dlock.Client, minHold time.Duration) *Locker {
	return &Locker{client: client, hold: minHold, closed: make(chan struct{})}
}

// Lock implements [gocron.Locker]. If another instance holds the lock, Lock
// does not wait but returns an error that matches [dlock.ErrLocked], and gocron
// skips the run. gocron also skips the run if Lock can't reach the store within
// 10 s.
func (l *Locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, lockWithin)
	defer cancel()
	held, err := l.client.RWMutex("gocron/" + url.PathEscape(job)).TryLock(ctx)
	if err != nil {
		return nil, fmt.Errorf("gocrondlock: job %q: %w", job, err)
	}
	return &jobLock{locker: l, held: held, until: time.Now().Add(l.hold)}, nil
}

// Close ends the minimum holds and waits until their locks are released. Locks
// of jobs that are still running are released when these jobs end.
func (l *Locker) Close() {
	l.mu.Lock()
	if !l.ended {
		l.ended = true
		close(l.closed)
	}
	l.mu.Unlock()
	l.kept.Wait()
}

// keep runs f in a goroutine that Close awaits, or returns false after Close.
func (l *Locker) keep(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.kept.Go(f)
	}
	return !l.ended
}

type jobLock struct {
	locker *Locker
	held   *dlock.Lock
	until  time.Time // end of the minimum hold
}

// Unlock implements [gocron.Lock]. During the minimum hold, it returns at once
// and leaves the release to a background goroutine.
func (j *jobLock) Unlock(context.Context) error {
	rest := time.Until(j.until)
	if rest > 0 && j.locker.keep(func() { j.unlockAfter(rest) }) {
		return nil
	}
	return j.held.Unlock()
}

func (j *jobLock) unlockAfter(rest time.Duration) {
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-j.locker.closed:
	}
	_ = j.held.Unlock() // on failure, the node goes with its session
}
