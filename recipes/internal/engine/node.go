package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

const (
	// watchAfter is the time from the grant of an entry to the start of the
	// watch of its own node.
	watchAfter = 300 * time.Millisecond
	// early is the shortest time that a watch normally lasts. A driver may end one
	// sooner, although nothing has changed. The loops that watch then pause, because
	// otherwise they would send request after request.
	early = 100 * time.Millisecond
)

// nodeWatch is the watch of an entry's own node. Entry.mu guards it.
type nodeWatch struct {
	kept  driver.Watch       // an armed watch of the node, left by the wait for watchNode; zero: none
	timer *time.Timer        // starts watchNode, watchAfter after the grant
	stop  context.CancelFunc // stops watchNode; nil until it has started
}

// stopWatch stops the watch, or keeps it from starting.
func (w *nodeWatch) stopWatch() {
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.stop != nil {
		w.stop()
	}
	w.kept.Stop()
	w.kept = driver.Watch{}
}

// takeWatch returns the watch that keepWatch has stored, or a zero one.
func (e *Entry) takeWatch() driver.Watch {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.watching.kept
	e.watching.kept = driver.Watch{}
	return w
}

// watchNode watches the own node until the entry is not granted any more. If
// the node is gone, the entry is lost. An error of the store does not show
// that.
func (e *Entry) watchNode() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if !e.beginWatch(cancel) {
		return
	}
	pause := Retries{New: e.queue.BackOff}
	place, watch := e.Place(), e.takeWatch()
	for {
		began, name := time.Now(), place.Name
		err := e.awaitEnd(ctx, place, watch)
		watch = driver.Watch{}
		if err == nil {
			place.Name, err = e.find(ctx)
		}
		switch {
		case ctx.Err() != nil || e.session.Err() != nil:
			return
		case err == nil && place.Name == "":
			e.lose(ErrTaken)()
			return
		case err == nil && (place.Name != name || time.Since(began) > early):
			pause.Succeeded()
		default:
			place.Name = name
			Sleep(pause.NextEndless(), ctx.Done())
		}
	}
}

func (e *Entry) beginWatch(cancel context.CancelFunc) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state != granted {
		return false
	}
	e.watching.stop = cancel
	return true
}

// awaitEnd returns nil once the watch of the node or ctx has ended. It arms a
// watch if w is zero. The store ends a watch at once if the node is not there.
func (e *Entry) awaitEnd(ctx context.Context, p driver.Place, w driver.Watch) (err error) {
	if w.C == nil {
		if w, err = e.session.Watch(ctx, e.queue.Name, p); err != nil {
			return err
		}
	}
	defer w.Stop()
	for {
		select {
		case _, open := <-w.C:
			if !open {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// find returns the present name of the node, or an empty one if it is gone.
// After a Replace that was not answered, the node may have its old or its new
// name. Another node of the same name does not count: it may be in a newer
// queue, or forged.
//
// A Rename that begins during the search may give the node a name that find has
// not looked for. If the names have changed, find searches again. Otherwise a
// holder would lose its lock, and its node would block other contenders.
func (e *Entry) find(ctx context.Context) (string, error) {
	place, names := e.names()
	for {
		found, err := e.findRead(ctx, place, names)
		if errors.Is(err, errors.ErrUnsupported) {
			found, err = e.findListed(ctx, place, names)
		}
		before := names
		if place, names = e.names(); found != "" || err != nil || slices.Equal(names, before) {
			return found, err
		}
	}
}

// names returns the names that the node may have, the more likely one first.
func (e *Entry) names() (driver.Place, []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	names := []string{e.place.Name}
	if e.rename.prefix != "" {
		if other := driver.FormatName(e.rename.prefix, e.place.Seq); other != e.place.Name {
			names = append(names, other)
		}
	}
	return e.place, names
}

// findRead reads single nodes, at a cost that does not depend on the length of
// the queue.
func (e *Entry) findRead(ctx context.Context, p driver.Place, names []string) (string, error) {
	for _, name := range names {
		info, err := driver.Read(ctx, e.session.Session, e.queue.Name, name)
		switch {
		case errors.Is(err, driver.ErrGone):
		case err != nil:
			return "", err
		case info.Token == p.Token && !info.Foreign:
			return name, nil
		}
	}
	return "", nil
}

func (e *Entry) findListed(ctx context.Context, p driver.Place, names []string) (string, error) {
	nodes, err := e.session.List(ctx, e.queue.Name)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if Index(nodes, driver.Node{Name: name, Epoch: p.Epoch}) >= 0 {
			return name, nil
		}
	}
	return "", nil
}
