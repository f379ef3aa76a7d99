package dlocktest

import (
	"context"
	"slices"
	"sync"

	"github.com/dlock-go/dlock/driver"
)

// onNews handles a watch's values and its end. It may close the channel once.
type onNews func(cause driver.Cause, open bool, out chan<- driver.Cause)

func relay(w driver.Watch, on onNews) driver.Watch {
	if w.C == nil {
		return w
	}
	out := make(chan driver.Cause, 4)
	quit := make(chan struct{})
	select {
	case cause, open := <-w.C: // the result must end with w (rule 6)
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
	return driver.NewWatch(out, sync.OnceFunc(func() {
		close(quit)
		w.Stop()
	}))
}

func pass(cause driver.Cause, open bool, out chan<- driver.Cause) {
	if open {
		out <- cause
	} else {
		close(out)
	}
}

// withoutReleased returns a watch that ends without a value when w sends
// Released.
func withoutReleased(w driver.Watch) driver.Watch {
	var once sync.Once
	return relay(w, func(_ driver.Cause, _ bool, out chan<- driver.Cause) { once.Do(func() { close(out) }) })
}

// passIf relays w while heard returns true. A lost end comes with the session's
// end.
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

// judged relays w, but sends Released before the end if isRelease returns true.
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

func there(s driver.Session, queue, name string) bool {
	nodes, _ := s.List(context.Background(), queue)
	return hasName(nodes, name)
}

func hasName(nodes []driver.Node, name string) bool {
	return slices.ContainsFunc(nodes, func(n driver.Node) bool { return n.Name == name })
}

func stand(s driver.Session, queue string, nodes ...driver.Node) bool {
	return !slices.ContainsFunc(nodes, func(n driver.Node) bool { return !there(s, queue, n.Name) })
}
