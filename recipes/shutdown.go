package recipes

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/recipes/internal/entry"
)

// Shutdown stops granting locks, waits until all locks have been unlocked, and
// then closes the client. Calls that wait for a lock leave the queue and return
// [ErrClosed], and so do new calls. A call that waits for an answer of the
// store returns once it has the answer.
//
// Holders keep their locks until they unlock, and may re-enter and downgrade
// them. A lost lock counts as held until Unlock. After the last Unlock, or when
// ctx ends, Shutdown calls [Client.Close] and returns its error. If the caller
// itself holds a lock, Shutdown waits until ctx ends.
//
// Locks that are still held when ctx ends or Close is called are lost. The
// error then says how many they were, and matches the error of ctx or
// ErrClosed. After Close, Shutdown returns the result of Close.
func (c *Client) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return errors.New("dlock: shutdown: nil context")
	}
	if c.closedOr(nil) != nil {
		return c.Close()
	}
	c.mu.Lock()
	c.drain()
	c.mu.Unlock()
	var cut error
	select {
	case <-c.holds.ended:
	case <-c.done:
		cut = ErrClosed
	case <-ctx.Done():
		cut = entry.WithCause(ctx, ctx.Err())
	}
	held := c.holds.count()
	err := c.Close()
	if held == 0 {
		return err
	}
	return join(fmt.Errorf("dlock: shutdown: locks that were still held and are now lost: %d: %w", held, cut), err)
}

// drain makes later calls and grants fail. Called with mu held; idempotent.
func (c *Client) drain() {
	if c.drains() {
		return
	}
	close(c.draining)
	c.holds.close()
	if a := c.dialing.attempt; a != nil && a.cancel != nil {
		a.cancel(ErrClosed)
	}
}
