package dlocktest

import (
	"context"
	"sync"

	"github.com/dlock-go/dlock/driver"
)

// onNews is called for each value that a watch sends, and once more when the
// watch has ended. The parameter open is false in this last call. The function
// decides what it sends to the channel out, and it closes out at most once.
type onNews func(cause driver.Cause, open bool, out chan<- driver.Cause)

// relay returns a watch that calls the function on for the news of w, until the
// watch is stopped or w has ended.
func relay(w driver.Watch, on onNews) driver.Watch {
	if w.C == nil {
		return w
	}
	out := make(chan driver.Cause, 4)
	quit := make(chan struct{})
	select {
	case cause, open := <-w.C: // if one of the nodes was gone already, w has ended by now: rule 6
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

// pass is an onNews that passes on each value and the end of the watch.
func pass(cause driver.Cause, open bool, out chan<- driver.Cause) {
	if open {
		out <- cause
	} else {
		close(out)
	}
}

// withoutReleased returns a watch that ends in place of sending Released.
func withoutReleased(w driver.Watch) driver.Watch {
	var once sync.Once
	return relay(w, func(_ driver.Cause, _ bool, out chan<- driver.Cause) { once.Do(func() { close(out) }) })
}

// passIf returns a watch. For each news of w it calls the function heard, and
// passes the news on if heard returns true. If it has not passed on the end of
// w, the watch ends when the session ends.
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

// judged returns a watch that passes on the news of w. If w ends without
// Released, the watch calls isRelease, and sends Released before its end if
// isRelease returns true.
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

// closedWatch returns a watch that has ended, as for a node that is not there.
func closedWatch() driver.Watch {
	c := make(chan driver.Cause)
	close(c)
	return driver.NewWatch(c, nil)
}

// openWatch returns a watch that sends nothing and does not end.
func openWatch() driver.Watch { return driver.NewWatch(make(chan driver.Cause), nil) }

// unarmed is a session whose Create returns no watch. So the kit has to call
// Watch, which the sabotage breaks.
type unarmed struct{ base }

func (s unarmed) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	n.Predecessor = nil
	return s.base.Create(ctx, queue, n)
}

// unknowing is a session whose Create returns neither a watch nor the nodes
// ahead. It is used by sabotages that change names, which would otherwise have
// to change the names of these nodes as well.
type unknowing struct{ base }

func (s unknowing) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	n.Predecessor = nil
	j, err := s.base.Create(ctx, queue, n)
	return driver.Joined{Place: j.Place}, err
}

// there reports whether a node of that name is in the queue.
func there(s driver.Session, queue, name string) bool {
	nodes, _ := s.List(context.Background(), queue)
	for _, n := range nodes {
		if n.Name == name {
			return true
		}
	}
	return false
}
