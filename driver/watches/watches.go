// Package watches keeps the open watches of a session. It helps authors of
// drivers and is no part of the contract.
//
// A session has one [Set]. Its Watch and WatchQueue arm a watch in the set and
// return it. The driver gives what it learns from the store to the set, and the
// set sends Released and ends watches as rules 6 and 13 of the contract demand.
// There are three calls for that, and a driver uses those that suit its store:
//
//   - [Set.Look] takes a list of a queue, from a store that has to be polled, or
//     after a reconnect.
//   - [Set.Gone] takes a notice that a node has gone.
//   - [Set.Changed] takes a notice that a queue has changed.
//
// Nothing may be missed once a watch is armed (rule 6). So a driver arms the
// watch first and asks the store then. In a driver that polls:
//
//	func (s *session) Watch(ctx context.Context, queue string,
//		p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
//		w := s.watches.Arm(queue, p, ahead...)
//		if err := s.look(ctx, queue); err != nil {
//			w.Stop()
//			return driver.Watch{}, err
//		}
//		return w, nil
//	}
//
// There look reads the queue by way of [Set.Look]. The session calls it for each
// of [Set.Queues] from time to time as well.
package watches

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/dlock-go/dlock/driver"
)

// Set is the set of the open watches of a session. The zero Set is empty and
// ready to use. A Set must not be copied after its first use.
//
// A Set is safe for use by many goroutines. It has no goroutine of its own. No
// method blocks, except that Look waits for its list.
//
// A watch is told things in the order in which the set learns them. So after the
// end of its own node a watch sends no Released. A Released that came before the
// end is still received before it.
type Set struct {
	mu     sync.Mutex
	over   bool             // the session has ended
	armed  int64            // how many watches were armed
	queues map[string]index // those with open watches
}

// index finds the open watches of a queue by the name of each of their nodes,
// and those of the whole queue by the empty name. So a notice costs no more where
// thousands wait in one queue.
type index map[string]map[*watch]bool

type watch struct {
	number   int64 // rises with each watch of the set
	c        chan driver.Cause
	queue    string
	whole    bool         // watches the whole queue
	version  any          // of the whole queue
	own      driver.Place // else
	ahead    []driver.Node
	released bool // Released was sent: ahead does not count any more
}

// names returns what the index has the watch under.
func (w *watch) names() []string {
	if w.whole {
		return []string{""}
	}
	names := []string{w.own.Name}
	for _, a := range w.ahead {
		names = append(names, a.Name)
	}
	return names
}

var closed = func() chan driver.Cause {
	c := make(chan driver.Cause)
	close(c)
	return c
}()

// Ended returns a watch that has ended. Watch returns it for a node that the
// store does not have.
func Ended() driver.Watch { return driver.NewWatch(closed, nil) }

// Arm arms a watch of the session's own node p and of nodes ahead of it. After
// [Set.End] it returns a watch that has ended.
//
// The set does not know which nodes stand. So the driver asks the store
// afterwards. If a node of the watch is missing, it ends the watch with Look or
// Gone, or stops it and returns Ended. A driver that calls Arm while nothing can
// change the queue, and p and the nodes ahead stand, has to ask nothing.
func (s *Set) Arm(queue string, p driver.Place, ahead ...driver.Node) driver.Watch {
	return s.arm(&watch{queue: queue, own: p, ahead: slices.Clone(ahead)})
}

// ArmQueue arms a watch of a whole queue. After [Set.End] it returns a watch that
// has ended.
//
// Look compares the queue's version with this one, so it may be older than the
// watch but not newer. A version of nil is unknown: then every Look ends the
// watch, which suits a driver that learns of each change by Gone and Changed and
// looks only after a reconnect.
func (s *Set) ArmQueue(queue string, version any) driver.Watch {
	return s.arm(&watch{queue: queue, whole: true, version: version})
}

func (s *Set) arm(w *watch) driver.Watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return Ended()
	}
	if s.queues == nil {
		s.queues = make(map[string]index)
	}
	x := s.queues[w.queue]
	if x == nil {
		x = make(index)
		s.queues[w.queue] = x
	}
	for _, name := range w.names() {
		if x[name] == nil {
			x[name] = make(map[*watch]bool)
		}
		x[name][w] = true
	}
	s.armed++
	w.number = s.armed
	w.c = make(chan driver.Cause, 1) // Released is sent once, so it never blocks
	return driver.NewWatch(w.c, func() { s.stop(w) })
}

func (s *Set) stop(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(w)
}

// remove takes a watch out of the set, if it is there. The mutex is held.
func (s *Set) remove(w *watch) {
	x := s.queues[w.queue]
	for _, name := range w.names() {
		delete(x[name], w)
		if len(x[name]) == 0 {
			delete(x, name)
		}
	}
	if len(x) == 0 {
		delete(s.queues, w.queue)
	}
}

// named returns the watches that the index has under those names, in the order of
// arming.
func (x index) named(names ...string) (found []*watch) {
	for _, name := range names {
		found = slices.AppendSeq(found, maps.Keys(x[name]))
	}
	inOrder(found)
	return slices.Compact(found)
}

// all returns all watches of the index, in the order of arming.
func (x index) all() []*watch { return x.named(slices.Collect(maps.Keys(x))...) }

func inOrder(watches []*watch) {
	slices.SortFunc(watches, func(a, b *watch) int { return cmp.Compare(a.number, b.number) })
}

// Len returns the number of open watches.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, x := range s.queues {
		n += len(x.all())
	}
	return n
}

// Has reports whether there is an open watch of the queue, or of nodes in it.
func (s *Set) Has(queue string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queues[queue]) > 0
}

// Queues returns the queues that have open watches, in no order.
func (s *Set) Queues() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.queues))
}

// Look calls list, and judges the watches of the queue by what it returns. If
// list fails, no watch ends, and Look returns that error.
//
// The function list asks the store and returns all nodes of the queue, as they
// are at some instant after the call of list. A node of this session comes with
// its token. Of other nodes the token may be zero. Watches that were armed after
// the call of Look are left alone, because the list may be older.
//
// A watch of nodes ends if one of them is not in the list. Nodes ahead, and an
// own node without a token, are looked for by their names. An own node with a
// token has to be in the list with the same name, epoch and token. A node ahead
// that is missing may have been released: without a notice the set cannot tell.
//
// A watch of the whole queue ends if the version is not the one of ArmQueue. A
// version is any comparable value that differs after each change of membership:
// a counter, a revision, an ETag. A store without one can make it of the latest
// token, the number of replacements until now, and the nodes:
// fmt.Sprint(token, replacements, nodes). The nodes alone are not enough: between
// two looks a node may come and go, or be replaced and replaced back.
func (s *Set) Look(queue string, list func() (nodes []driver.Place, version any, err error)) error {
	s.mu.Lock()
	armed := s.armed
	s.mu.Unlock()
	nodes, version, err := list()
	if err != nil {
		return err
	}
	places, names := make(map[driver.Place]bool), make(map[string]bool)
	for _, n := range nodes {
		places[n], names[n.Name] = true, true
	}
	stands := func(w *watch) bool {
		if w.whole {
			return w.version != nil && w.version == version
		}
		missing := func(n driver.Node) bool { return !names[n.Name] }
		return names[w.own.Name] && (w.own.Token == 0 || places[w.own]) &&
			(w.released || !slices.ContainsFunc(w.ahead, missing))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(s.queues[queue].all(), func(w *watch) bool { return w.number <= armed && !stands(w) })
	return nil
}

// Gone is told that a node of the queue has gone, or has got another name, and
// why. Watches of the whole queue end. So do watches that have the node as their
// own, and watches that have it ahead. But if why is Released, a watch that has
// the node ahead sends Released and goes on for its own node alone.
//
// Notices come in the order of the store, at least those of one queue. The set
// sends Released if it has not heard of the end of the own node before.
func (s *Set) Gone(queue string, n driver.Node, why driver.Cause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(s.queues[queue].named("", n.Name), func(w *watch) bool { return w.whole || w.ends(n, why) })
}

// ends tells a watch of nodes that a node has gone, and reports whether the watch
// ends. For an end the name counts, since a watch may end early. For Released the
// epoch counts as well.
func (w *watch) ends(n driver.Node, why driver.Cause) bool {
	if w.own.Name == n.Name {
		return true
	}
	i := slices.IndexFunc(w.ahead, func(a driver.Node) bool { return a.Name == n.Name })
	if i < 0 || w.released {
		return false
	}
	if why != driver.Released || w.ahead[i].Epoch != n.Epoch {
		return true
	}
	w.released = true
	w.c <- driver.Released
	return false
}

// Changed is told that the membership of a queue has changed. Watches of the
// whole queue end. Watches of nodes go on.
func (s *Set) Changed(queue string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(s.queues[queue].named(""), func(*watch) bool { return true })
}

// end ends those of the watches that match. The mutex is held.
func (s *Set) end(watches []*watch, match func(*watch) bool) {
	for _, w := range watches {
		if match(w) {
			s.remove(w)
			close(w.c)
		}
	}
}

// End is told that the session has ended. All watches end, in the order of
// arming, and so does every watch that is armed later.
func (s *Set) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var open []*watch
	for _, x := range s.queues {
		open = append(open, x.all()...)
	}
	inOrder(open)
	s.end(open, func(*watch) bool { return true })
	s.over = true
}
