package entry

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

const (
	// watchAfter is how long after its grant an entry starts to watch its own
	// node. Shorter holds thus save the request for a watch.
	watchAfter = 300 * time.Millisecond
	// early is the age below which a watch may have ended without a change.
	// watchNode then pauses, so that it does not flood the store.
	early = 100 * time.Millisecond
)

// nodeWatch is the watch of a granted entry's own node. Entry.mu guards it.
type nodeWatch struct {
	kept   driver.Watch       // the waiter's watch, reused after the grant
	timer  *time.Timer        // starts watchNode after watchAfter
	cancel context.CancelFunc // stops watchNode; nil until it started
}

func (w *nodeWatch) stopWatch() {
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.cancel != nil {
		w.cancel()
	}
	w.kept.Stop()
	w.kept = driver.Watch{}
}

// watchNode marks the granted entry as lost when its own node is gone. An error
// of the store is not a loss.
func (e *Entry) watchNode() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	place, watch, begun := e.beginWatch(cancel)
	if !begun {
		return
	}
	pause := Retries{New: e.queue.BackOff}
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
			e.lose(ErrTaken)
			return
		case err == nil && (place.Name != name || time.Since(began) > early):
			pause.Succeeded()
		default:
			place.Name = name
			Sleep(pause.NextEndless(), ctx.Done())
		}
	}
}

// beginWatch returns the node, with its watch if the waiter has kept it open.
func (e *Entry) beginWatch(cancel context.CancelFunc) (p driver.Place, kept driver.Watch, begun bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state == granted {
		kept = e.watching.kept
		e.watching.kept, e.watching.cancel = driver.Watch{}, cancel
	}
	return e.place, kept, e.state == granted
}

// awaitEnd waits until the watch of the node or ctx ends. A watch of a node
// that is gone ends at once.
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

// find returns the node's current name, or an empty string if it is gone. If a
// rename begins meanwhile, find searches again for both names.
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

// names returns the possible names of the node, the more likely one first.
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

// findRead implements find for drivers that can read single nodes, which is
// cheaper than listing a long queue.
func (e *Entry) findRead(ctx context.Context, p driver.Place, names []string) (string, error) {
	for _, name := range names {
		info, err := driver.Inspect(e.session.Session).Read(ctx, e.queue.Name, name)
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
