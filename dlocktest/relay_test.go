package dlocktest

import (
	"context"
	"sync"

	"github.com/dlock-go/dlock/driver"
)

// onNews is called with each value that a watch sends, and once with open false
// when the watch has ended. It decides what to send to out, and closes out at
// most once.
type onNews func(cause driver.Cause, open bool, out chan<- driver.Cause)

// relay returns a watch that calls on for w until it is stopped or w has ended.
func relay(w driver.Watch, on onNews) driver.Watch {
	if w.C == nil {
		return w
	}
	out := make(chan driver.Cause, 4)
	quit := make(chan struct{})
	select {
	case cause, open := <-w.C: // w has ended by now if one of its nodes was already gone: rule 6
		if on(cause, open, out); !open {
			return driver.NewWatch(out, w.Stop)
		}
	default:
	}
	go func() {
		for {
			select {
			case cause, open := <-w.C:
				if on(cause, open, out); !open {
					return
				}
			case <-quit:
				return
			}
		}
	}()
	var once sync.Once
	return driver.NewWatch(out, func() {
		once.Do(func() { close(quit) })
		w.Stop()
	})
}

// pass is an onNews that changes nothing.
func pass(cause driver.Cause, open bool, out chan<- driver.Cause) {
	if open {
		out <- cause
	} else {
		close(out)
	}
}

// withoutReleased returns a watch that ends instead of sending Released.
func withoutReleased(w driver.Watch) driver.Watch {
	var once sync.Once
	return relay(w, func(_ driver.Cause, _ bool, out chan<- driver.Cause) { once.Do(func() { close(out) }) })
}

// passIf returns a watch that passes on the values and the end of w for which
// heard returns true. If it misses the end of w, it ends with the session.
func passIf(s driver.Session, w driver.Watch, heard func() bool) driver.Watch {
	return relay(w, func(cause driver.Cause, open bool, out chan<- driver.Cause) {
		if heard() || s.Err() != nil {
			pass(cause, open, out)
		} else if !open {
			go func() {
				<-s.Done()
				close(out)
			}()
		}
	})
}

// judged returns a watch that passes on what w sends. If w ends without
// Released and isRelease returns true, it sends Released first.
func judged(s driver.Session, w driver.Watch, isRelease func() bool) driver.Watch {
	said := false
	return relay(w, func(cause driver.Cause, open bool, out chan<- driver.Cause) {
		said = said || open && cause == driver.Released
		if !open && !said && s.Err() == nil && isRelease() {
			out <- driver.Released
		}
		pass(cause, open, out)
	})
}

// closedWatch returns a watch that has ended.
func closedWatch() driver.Watch {
	c := make(chan driver.Cause)
	close(c)
	return driver.NewWatch(c, nil)
}

// openWatch returns a watch that sends nothing and does not end.
func openWatch() driver.Watch { return driver.NewWatch(make(chan driver.Cause), nil) }

// unarmed is a session whose Create returns no watch, so that the kit has to
// call the broken Watch.
type unarmed struct{ base }

func (s unarmed) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	n.Predecessor = nil
	return s.base.Create(ctx, queue, n)
}

// unknowing is a session whose Create returns neither a watch nor the nodes
// ahead. Sabotages that change names would otherwise have to change them there
// as well.
type unknowing struct{ base }

func (s unknowing) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	n.Predecessor = nil
	j, err := s.base.Create(ctx, queue, n)
	return driver.Joined{Place: j.Place}, err
}

func there(s driver.Session, queue, name string) bool {
	nodes, _ := s.List(context.Background(), queue)
	for _, n := range nodes {
		if n.Name == name {
			return true
		}
	}
	return false
}
