package gocrondlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock"
)

// ErrNotLeader is returned by IsLeader while another instance leads.
var ErrNotLeader = errors.New("gocrondlock: another instance is the leader")

// Elector implements [gocron.Elector]. The leader is the instance that holds
// the lock. It stays the leader until it calls Close or loses the lock. An
// Elector is safe for concurrent use.
type Elector struct {
	mutex *dlock.RWMutex
	turn  chan struct{} // semaphore that guards the fields below
	held  *dlock.Lock   // nil if this instance does not lead
	ended bool
}

// NewElector returns the elector of this instance. Instances whose electors
// have the same name elect one of them as the leader. The lock has this name,
// too. NewElector makes no request. The caller must close the elector before
// the client.
func NewElector(client *dlock.Client, name string) *Elector {
	return &Elector{mutex: client.RWMutex(name), turn: make(chan struct{}, 1)}
}

// IsLeader implements [gocron.Elector]. If this instance leads, it returns nil
// without a request to the store. If no instance leads, this one becomes the
// leader. Otherwise IsLeader returns [ErrNotLeader], or a store error if
// the store can't be reached within 10 s.
func (e *Elector) IsLeader(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lockWithin)
	defer cancel()
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return fmt.Errorf("gocrondlock: %w", ctx.Err())
	}
	switch {
	case e.ended:
		return fmt.Errorf("gocrondlock: the elector: %w", dlock.ErrClosed)
	case e.held != nil && e.held.Err() == nil:
		return nil
	case e.held != nil:
		_ = e.held.Unlock() // lets the client end the lost session
		e.held = nil
	}
	held, err := e.mutex.TryLock(ctx)
	if errors.Is(err, dlock.ErrLocked) {
		return ErrNotLeader
	}
	if err != nil {
		return fmt.Errorf("gocrondlock: %w", err)
	}
	e.held = held
	return nil
}

// Close gives up the leadership. It returns the error of [dlock.Lock.Unlock].
func (e *Elector) Close() error {
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	e.ended = true
	if e.held == nil {
		return nil
	}
	held := e.held
	e.held = nil
	return held.Unlock()
}
