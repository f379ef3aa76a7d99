package engine

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock/driver"
)

// A node gets another prefix in two steps: MarkRenamed decides on it, and Rename
// tells the store. From MarkRenamed on, everything here treats the entry as one
// with the new prefix, because the store may carry out a Replace whose answer is
// lost, and other contenders then see the new name already.

// rename is the change of a node's name, guarded by Entry.mu.
type rename struct {
	prefix    string             // the prefix of the new name; empty: the node keeps its name
	done      bool               // true once the store has confirmed the new name
	underWay  chan struct{}      // closed when the Replace under way returns; nil if none is under way
	interrupt context.CancelFunc // cancels the context of that Replace; nil if none is under way
	repeated  bool               // true while the reaper repeats the Replace
}

func (r *rename) cancelReplace() {
	if r.interrupt != nil {
		r.interrupt()
	}
}

// MarkRenamed decides that the node gets another prefix. It returns false if
// that was decided before.
func (e *Entry) MarkRenamed(prefix string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.rename.prefix != "" {
		return false
	}
	e.rename.prefix = prefix
	return true
}

// IsRenamed reports whether the node has, or will get, another prefix than the
// one with which it was created.
func (e *Entry) IsRenamed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rename.prefix != ""
}

// Rename tells the store of the prefix that MarkRenamed has decided on. It
// returns nil without a request if the store has confirmed the prefix before,
// or the entry is not granted any more. After an error the reaper repeats the
// request. If the node is gone, the entry is lost.
func (e *Entry) Rename(ctx context.Context) error {
	err := e.replace(ctx)
	if errors.Is(err, driver.ErrGone) {
		e.lose(ErrTaken)()
	}
	if err != nil {
		e.renameLater()
	}
	return err
}

// replace sends one Replace, if the node still needs one and after any that is
// in flight.
func (e *Entry) replace(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	place, wanted, err := e.beginReplace(ctx, func() { cancel(errOver) })
	if !wanted {
		return err
	}
	renamed := false
	defer func() { e.endReplace(place, renamed) }() // also if the driver panics
	after, err := driver.Replace(ctx, e.session.Session, e.queue.Name, place, e.rename.prefix)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return nil
	case err == nil:
		place, renamed = after, true
	}
	err = WithCause(ctx, err)
	e.queue.Renamed(ctx, place.Name, err)
	return err
}

// WaitAs renames the node of a waiting entry, which keeps its position and then
// waits by another rule, not exclusively. The rule must not let the entry pass
// where an entry behind it may have been granted. After an error the node may
// have either prefix, and the caller has to remove the entry.
func (e *Entry) WaitAs(ctx context.Context, prefix string, rule Rule) error {
	e.dropFirst()
	p, err := driver.Replace(ctx, e.session.Session, e.queue.Name, e.Place(), prefix)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.place, e.spec.Rule, e.spec.Exclusive = p, rule, false
	return nil
}

func (e *Entry) beginReplace(ctx context.Context, cancel context.CancelFunc) (p driver.Place, wanted bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.rename.underWay != nil {
		if err := e.awaitReplace(ctx); err != nil {
			return driver.Place{}, false, err
		}
	}
	if e.state != granted || e.rename.done {
		return driver.Place{}, false, nil
	}
	e.rename.underWay, e.rename.interrupt = make(chan struct{}), cancel
	return e.place, true, nil
}

func (e *Entry) endReplace(p driver.Place, renamed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.rename.underWay)
	e.rename.underWay, e.rename.interrupt, e.place, e.rename.done = nil, nil, p, renamed
}

// awaitReplace waits for the Replace in flight. It is called with mu held, and
// releases mu meanwhile.
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

// renameLater has the reaper repeat the Replace until the store confirms or
// refuses it, or the entry is not granted any more.
func (e *Entry) renameLater() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.rename.repeated || e.state != granted {
		return
	}
	e.rename.repeated = true
	e.reap(&task{try: e.tryRename, ended: e.endRepeats})
}

func (e *Entry) endRepeats() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rename.repeated = false
}

func (e *Entry) tryRename(ctx context.Context) error {
	err := e.replace(ctx)
	if err != nil && (ctx.Err() != nil || errors.Is(err, driver.ErrUnavailable)) && e.isGranted() {
		return err
	}
	if errors.Is(err, driver.ErrGone) {
		e.lose(ErrTaken)()
	}
	return nil // the task also ends if the store refuses the Replace: readers then wait until the node is removed
}
