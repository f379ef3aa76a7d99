package entry

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock/driver"
)

// An entry counts as renamed from MarkRenamed on, not from the reply. The reply
// may be lost after other clients have seen the new name.

// rename is the state of a node's renaming, for example by a downgrade. Guarded
// by Entry.mu.
type rename struct {
	prefix    string             // the new prefix; empty if unchanged
	confirmed bool               // whether the store has confirmed the new name
	underWay  chan struct{}      // closed when the Replace in flight returns
	interrupt context.CancelFunc // cancels the Replace in flight
	repeated  bool               // whether the reaper is retrying the Replace
}

func (r *rename) cancelReplace() {
	if r.interrupt != nil {
		r.interrupt()
	}
}

// MarkRenamed records that the node is to get the new prefix, which Rename then
// sends to the store. It returns false if this was already recorded.
func (e *Entry) MarkRenamed(prefix string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.rename.prefix != "" {
		return false
	}
	e.rename.prefix = prefix
	return true
}

// Rename sends the prefix set by MarkRenamed to the store. It is a no-op if the
// store has already confirmed the prefix or the entry is no longer granted. On
// error the reaper retries. If the node is gone, the entry is lost.
func (e *Entry) Rename(ctx context.Context) error {
	err := e.replace(ctx)
	if errors.Is(err, driver.ErrGone) {
		e.lose(ErrTaken)
	}
	if err != nil {
		e.renameLater()
	}
	return err
}

// replace waits for any Replace in flight, and sends its own if needed.
func (e *Entry) replace(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	place, wanted, err := e.beginReplace(ctx, func() { cancel(errOver) })
	if !wanted {
		return err
	}
	renamed := false
	defer func() { e.endReplace(place, renamed) }() // also if the driver panics
	after, err := e.session.Replace(ctx, e.queue.Name, place, e.rename.prefix)
	if err == nil {
		place, renamed = after, true
	}
	err = WithCause(ctx, err)
	e.queue.Renamed(ctx, place.Name, err)
	return err
}

func (e *Entry) beginReplace(ctx context.Context, cancel context.CancelFunc) (p driver.Place, wanted bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.rename.underWay != nil {
		if err := e.awaitReplace(ctx); err != nil {
			return driver.Place{}, false, err
		}
	}
	if e.state != granted || e.rename.confirmed {
		return driver.Place{}, false, nil
	}
	e.rename.underWay, e.rename.interrupt = make(chan struct{}), cancel
	return e.place, true, nil
}

func (e *Entry) endReplace(p driver.Place, renamed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.rename.underWay)
	e.rename.underWay, e.rename.interrupt, e.place, e.rename.confirmed = nil, nil, p, renamed
}

// awaitReplace must be called with mu held, which it releases while waiting.
func (e *Entry) awaitReplace(ctx context.Context) error {
	underWay := e.rename.underWay
	e.mu.Unlock()
	defer e.mu.Lock()
	select {
	case <-underWay:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// renameLater has the reaper retry the Replace until the store answers or the
// entry is no longer granted.
func (e *Entry) renameLater() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.rename.repeated || e.state != granted {
		return
	}
	e.rename.repeated = true
	e.session.client.Go(e.newTask(e.tryRename, e.endRepeats).run)
}

func (e *Entry) endRepeats() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rename.repeated = false
}

func (e *Entry) tryRename(ctx context.Context) error {
	err := e.replace(ctx)
	switch {
	case errors.Is(err, driver.ErrGone):
		e.lose(ErrTaken)
	case !e.isGranted(): // the node needs no other name any more
		return e.session.Err()
	}
	// If the store has refused to rename the node, the readers behind it wait
	// until the node is removed.
	return err
}
