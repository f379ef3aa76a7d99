package shards

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dlock-go/dlock"
)

// pace is the minimum interval between calls of work for a shard, and between
// attempts to get a lock.
const pace = time.Second

// Work works on one shard until ctx ends. The lock is that of the shard; its
// token rises with each holder, so that resources can refuse late writes.
type Work func(ctx context.Context, lock *dlock.Lock, shard int) error

// Run divides the shards 0 to n-1 among all processes that call Run with this
// name, and calls the function work for each shard of this process, each on its
// own goroutine. Run stops when ctx ends, or after an error that retries cannot
// cure. It returns once all calls of work have returned.
//
// All processes must pass the same n. If they do not, there is still at most
// one worker on a shard, but some shards may have none.
//
// While work runs, its process holds the lock name/<shard>. The context passed
// to work comes from [dlock.Lock.Context]. It ends when ctx ends, when the
// shard moves to another process, and when the lock is lost, in which case its
// cause matches dlock.ErrLost. The next process waits until work has returned,
// so work should return soon, but not before all goroutines that it has started
// have ended.
//
// When work returns:
//
//   - If its context has ended, Run ignores the result. If the shard still
//     belongs to this process, for example after a loss of the lock, Run takes
//     the lock again and calls work again.
//   - Otherwise, if work returns nil, Run calls it again with the same lock, at
//     least a second after the previous call. So work may be one step of a job.
//   - Otherwise, Run gives up all shards and returns the error, which names the
//     shard.
//
// If work panics, the lock is given back and the panic ends the program.
//
// Run outlasts outages of the store. Work on a shard goes on until the lock is
// lost, and only after that can another process get the lock. If the session
// ends, Run joins again as a new worker.
//
// When ctx ends, Run returns its error. When the client is closed or shut down,
// Run returns dlock.ErrClosed, and Shutdown waits for work. Run leaves nothing
// in the store, unless it cannot reach the store; the error may then match
// dlock.ErrUnlock. Run also returns an error if n is below 1, work is nil, or
// the name is bad (dlock.ErrBadName).
//
// The name and the names below it should have no other use. A process that
// holds the lock of the name exclusively keeps new workers from joining.
// WithTimeout, WithMaxQueue and WithMaxHold of the client have no effect here.
// Several calls of Run in one process count as several workers.
func Run(ctx context.Context, c *dlock.Client, name string, n int, work Work) error {
	switch {
	case ctx == nil:
		return errors.New("dlock: shards: nil context")
	case n < 1:
		return fmt.Errorf("dlock: shards: %d shards, want 1 or more", n)
	case work == nil:
		return errors.New("dlock: shards: nil work")
	}
	group, running := errgroup.WithContext(dlock.WithoutReentry(ctx))
	r := &runner{ctx: running, client: c, name: name, work: work, group: group, shards: make([]shard, n)}
	group.Go(r.takePart)
	if err := group.Wait(); err != nil {
		return err
	}
	return fmt.Errorf("dlock: %v: %w", r.lock(name), ctx.Err())
}

type runner struct {
	ctx    context.Context // ends with Run's ctx or an error
	client *dlock.Client
	name   string
	work   Work
	group  *errgroup.Group
	shards []shard // used by takePart only
}

type shard struct {
	stop  context.CancelCauseFunc // nil unless this process works on the shard
	ended <-chan struct{}         // closed when its goroutine returns; may be nil
}

func (r *runner) lock(name string) *dlock.RWMutex {
	return r.client.RWMutex(name, dlock.WithTimeout(0), dlock.WithMaxQueue(0), dlock.WithMaxHold(0))
}

// takePart makes this process a worker, again after each lost session. When ctx
// ends, others may queue before this process's work has returned.
func (r *runner) takePart() error {
	workers := r.lock(r.name)
	return repeat(r.ctx, func() error {
		member, err := workers.RLock(r.ctx)
		if err != nil {
			return permanent(r.ctx, err)
		}
		err = r.follow(workers, member)
		r.divide(nil, "", member.Err())
		return cmp.Or(permanent(r.ctx, err), r.giveBack(member))
	})
}

// follow divides the shards after each change of the workers. It returns when
// the membership is lost, or after an error.
func (r *runner) follow(workers *dlock.RWMutex, member *dlock.Lock) (err error) {
	for queue, seen := range workers.Observe(member.Context(r.ctx)) {
		if err = seen; err == nil {
			r.divide(members(queue), member.Node(), nil)
		}
	}
	return err
}

// divide starts and stops work so that this process serves the shards of the
// node self, or none if self is not listed.
func (r *runner) divide(nodes []string, self string, cause error) {
	owners := assign(nodes, len(r.shards))
	own := slices.Index(nodes, self)
	for i := range r.shards {
		s := &r.shards[i]
		switch mine := own >= 0 && owners[i] == own; {
		case mine && s.stop == nil:
			r.start(i)
		case !mine && s.stop != nil:
			s.stop(cause)
			s.stop = nil
		}
	}
}

// start serves a shard on a goroutine. The shard's previous goroutine must
// return first: after a loss it may still be working.
func (r *runner) start(i int) {
	s := &r.shards[i]
	ctx, stop := context.WithCancelCause(r.ctx)
	before, ended := s.ended, make(chan struct{})
	s.stop, s.ended = stop, ended
	r.group.Go(func() error {
		defer close(ended)
		defer stop(nil)
		if before != nil {
			<-before
		}
		return r.serve(ctx, i)
	})
}

func (r *runner) serve(ctx context.Context, i int) error {
	m := r.lock(fmt.Sprintf("%s/%d", r.name, i))
	return repeat(ctx, func() error {
		lock, err := m.Lock(ctx)
		if err != nil {
			return permanent(ctx, err)
		}
		return r.hold(ctx, i, lock)
	})
}

func (r *runner) hold(ctx context.Context, i int, lock *dlock.Lock) (err error) {
	defer func() { err = cmp.Or(err, r.giveBack(lock)) }()
	ctx = lock.Context(ctx)
	over := func() bool { return ctx.Err() != nil || lock.Err() != nil }
	return repeat(ctx, func() error {
		if err := r.work(ctx, lock, i); err != nil && !over() {
			return fmt.Errorf("dlock: %s/%d: %w", r.name, i, err)
		}
		return nil
	})
}

// giveBack unlocks. It returns an error if the lock's node may stay, unless Run
// goes on and the store is merely unavailable.
func (r *runner) giveBack(lock *dlock.Lock) error {
	err := lock.Unlock()
	if errors.Is(err, dlock.ErrUnlock) && (r.ctx.Err() != nil || !errors.Is(err, dlock.ErrUnavailable)) {
		return err
	}
	return nil
}

// permanent returns nil if ctx has ended or a retry may succeed, otherwise err.
func permanent(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, dlock.ErrUnavailable) || errors.Is(err, dlock.ErrLost) {
		return nil
	}
	return err
}

func repeat(ctx context.Context, f func() error) error {
	for ctx.Err() == nil {
		again := time.NewTimer(pace)
		if err := f(); err != nil {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
	}
	return nil
}
