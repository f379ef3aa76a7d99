package watches

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/dlock-go/dlock/driver"
)

// Set holds a session's open watches. The zero Set is ready to use. A Set must
// not be copied after first use. It is safe for concurrent use, has no
// goroutine, and no method blocks.
//
// Each watch reports changes in the order in which the set learns of them. It
// never sends Released after its own node has gone.
type Set struct {
	mu     sync.Mutex
	over   bool
	armed  int64            // how many watches were ever armed
	queues map[string]index // by queue; only queues with open watches
}

// index holds a queue's watches by node name, so that a notice costs the same
// with many waiters. Whole-queue watches have the empty name.
type index map[string]*watched

type watched struct {
	by    map[*watch]bool
	proof string // see Prove
}

type watch struct {
	number int64 // counts from 1, in the order of arming
	c      chan driver.Cause
	queue  string

	// For a watch of the whole queue:
	whole   bool
	version any // as passed to ArmQueue

	// For a watch of nodes:
	own      driver.Place
	ahead    []driver.Node
	released bool // whether Released was sent; ahead is then unwatched
}

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

func (w *watch) open() []string {
	if w.released {
		return []string{w.own.Name}
	}
	return w.names()
}

var closed = func() chan driver.Cause {
	c := make(chan driver.Cause)
	close(c)
	return c
}()

// Ended returns a watch that has already ended. A driver returns it from Watch
// if the session's own node is not in the queue.
func Ended() driver.Watch { return driver.NewWatch(closed, nil) }

// Arm arms a watch of the session's own node p and of nodes ahead of it. After
// [Set.End] it returns a watch that has ended.
//
// A node may go just before Arm. After calling Arm, the driver therefore asks
// the store which nodes are in the queue. If a watched node is missing, the
// driver calls Compare or Gone, or stops the watch and returns Ended instead.
// It need not ask if it knows that all watched nodes are in the queue and stay
// there during the call of Arm.
func (s *Set) Arm(queue string, p driver.Place, ahead ...driver.Node) driver.Watch {
	return s.arm(&watch{queue: queue, own: p, ahead: slices.Clone(ahead)})
}

// ArmQueue arms a watch of a whole queue. After [Set.End] it returns a watch
// that has ended.
//
// Compare ends the watch if the queue no longer has the given version. If the
// version is nil, every Compare ends the watch. A driver may pass nil if it
// reports each change by Gone or Changed, and compares only after a reconnect.
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
			x[name] = &watched{by: make(map[*watch]bool)}
		}
		x[name].by[w] = true
	}
	s.armed++
	w.number = s.armed
	w.c = make(chan driver.Cause, 1) // room for Released, sent at most once
	return driver.NewWatch(w.c, func() { s.stop(w) })
}

func (s *Set) stop(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(w)
}

func (s *Set) remove(w *watch) {
	x := s.queues[w.queue]
	for _, name := range w.names() {
		if of := x[name]; of != nil {
			delete(of.by, w)
			if len(of.by) == 0 {
				delete(x, name)
			}
		}
	}
	if len(x) == 0 {
		delete(s.queues, w.queue)
	}
}

// named returns the watches with any of these names, in the order of arming.
func (x index) named(names ...string) (found []*watch) {
	for _, name := range names {
		if of := x[name]; of != nil {
			found = slices.AppendSeq(found, maps.Keys(of.by))
		}
	}
	inOrder(found)
	return slices.Compact(found)
}

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

// Waiting reports whether there is an open watch that waits for nodes other than
// the session's own. A node without a token counts as another session's.
func (s *Set) Waiting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.queues {
		if slices.ContainsFunc(x.all(), (*watch).waits) {
			return true
		}
	}
	return false
}

func (w *watch) waits() bool {
	return w.whole || w.own.Token == 0 || len(w.ahead) > 0 && !w.released
}

// Has reports whether there is an open watch of the queue, or of nodes in it.
func (s *Set) Has(queue string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queues[queue]) > 0
}

// Queues returns the queues that have open watches, in no particular order.
func (s *Set) Queues() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.queues))
}

// Whole reports whether there is an open watch of the whole queue.
func (s *Set) Whole(queue string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queues[queue][""] != nil
}

// Names returns the names of the watched nodes of the queue, in no particular
// order. A driver may read only these nodes, if that is faster than a list.
func (s *Set) Names(queue string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make(map[string]bool)
	for _, w := range s.queues[queue].all() {
		for _, name := range w.open() {
			names[name] = true
		}
	}
	delete(names, "") // the name of watches of the whole queue
	return slices.Collect(maps.Keys(names))
}

// Next returns the first node in the queue that a watch waits for, as the
// result ahead, and the own node of that watch. The own node is zero if the
// watch was armed without a token. Both are zero if each watch waits only for
// its own node.
func (s *Set) Next(queue string) (own, ahead driver.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.queues[queue].all() {
		me, nodes := w.own.Node, w.ahead
		if w.own.Token == 0 {
			me, nodes = driver.Node{}, append(slices.Clip(nodes), w.own.Node)
		}
		for _, n := range nodes {
			if w.waits() && (ahead.Name == "" || n.Seq < ahead.Seq) {
				own, ahead = me, n
			}
		}
	}
	return own, ahead
}

// Mark is a moment, which [Set.Compare] uses to tell which watches are older
// than a list.
type Mark int64

// Mark returns the current moment. The driver calls it before it requests a
// list for [Set.Compare].
func (s *Set) Mark() Mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Mark(s.armed)
}

// Compare compares the watches of the queue with a list of its nodes at one
// instant, and ends the watches that have missed a change. These are the
// arguments:
//
//   - m is the [Set.Mark] from before the request for the list. Compare ignores
//     watches armed later, because the list may be older than these.
//   - asked, if not nil, names the only nodes that the driver has requested.
//     Compare ignores watches of other nodes.
//   - nodes is the list. This session's nodes must have their tokens. The
//     tokens of other nodes may be zero.
//   - released is the node that was released last, if the store records it. The
//     driver passes it only once.
//   - version is a comparable value that is new after each change of the
//     queue's members, such as a counter, a revision or an ETag.
//
// A watch of nodes ends if one of its nodes is not in the list. The nodes ahead
// are matched by name alone. The own node is matched by name, epoch and token,
// or by name alone if the watch was armed without a token. If only the node
// released is missing, the watch sends Released and goes on, as after
// [Set.Gone].
//
// A watch of the whole queue ends if the version differs from the one passed to
// ArmQueue. A store without versions can use fmt.Sprint(token, replacements,
// nodes), with the latest token and the number of replacements so far. The
// nodes alone are not enough, because a node may be added and removed, or
// replaced and replaced back, between two lists.
//
// If notices may have been lost, a driver first makes sure that it receives
// notices again, then calls Compare for each queue returned by Queues, and only
// then calls Gone for the new notices.
func (s *Set) Compare(queue string, m Mark, asked []string, nodes []driver.Place, released driver.Node, version any) {
	places, names := make(map[driver.Place]bool), map[string]bool{released.Name: true}
	for _, n := range nodes {
		places[n], names[n.Name] = true, true
	}
	known := make(map[string]bool, len(asked))
	for _, name := range asked {
		known[name] = true
	}
	notAsked := func(name string) bool { return !known[name] }
	unchanged := func(w *watch) bool {
		if asked != nil && slices.ContainsFunc(w.open(), notAsked) {
			return true
		}
		if w.whole {
			return w.version != nil && w.version == version
		}
		missing := func(n driver.Node) bool { return !names[n.Name] }
		return names[w.own.Name] && (w.own.Token == 0 || places[w.own]) &&
			(w.released || !slices.ContainsFunc(w.ahead, missing))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(s.queues[queue].all(), func(w *watch) bool {
		return w.number <= int64(m) && (!unchanged(w) || !w.whole && w.lose(released, driver.Released))
	})
}

// Gone tells the set that a node is gone from the queue or has been renamed.
// This ends the watches of the whole queue and of the node. But if the cause is
// Released, a watch that has the node ahead sends Released and goes on for its
// own node alone.
//
// For each queue, a driver must call Gone in the order of the removals in the
// store. Otherwise a watch may send Released although its own node was gone
// before.
func (s *Set) Gone(queue string, n driver.Node, why driver.Cause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(s.queues[queue].named("", n.Name), func(w *watch) bool { return w.whole || w.lose(n, why) })
}

// Prove sets the proof of a watched node: a text that this session has read
// from the store together with the node, and that a notice of the node's
// release must repeat. The set keeps it until the last watch of the node ends.
func (s *Set) Prove(queue, name, proof string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.queues[queue][name]; of != nil {
		of.proof = proof
	}
}

// Announced is like [Set.Gone], for stores where clients can send notices, too.
// If the cause is Released, but the proof is not the one set by [Set.Prove],
// the watches of the node end, so that the caller lists the queue.
func (s *Set) Announced(queue string, n driver.Node, why driver.Cause, proof string) {
	s.mu.Lock()
	of := s.queues[queue][n.Name]
	if of == nil || of.proof == "" || of.proof != proof {
		why = driver.Changed
	}
	s.mu.Unlock()
	s.Gone(queue, n, why)
}

// Left tells the set that the session has removed or renamed its own node, and
// that the store will announce this. It ends the watches of the whole queue and
// those that have the node as their own. The watches that have it ahead wait
// for the notice, which may say that the node was released.
func (s *Set) Left(queue string, n driver.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(s.queues[queue].named("", n.Name), func(w *watch) bool { return w.whole || w.own.Name == n.Name })
}

// lose reports whether the watch ends because n is gone. A node ahead with
// another epoch ends it, to be safe.
func (w *watch) lose(n driver.Node, why driver.Cause) (ends bool) {
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

// Changed tells the set that a node was added to the queue, removed or
// replaced. This ends the watches of the whole queue. Watches of nodes go on.
func (s *Set) Changed(queue string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(s.queues[queue].named(""), func(*watch) bool { return true })
}

func (s *Set) end(watches []*watch, match func(*watch) bool) {
	for _, w := range watches {
		if match(w) {
			s.remove(w)
			close(w.c)
		}
	}
}

// End ends all watches, in the order of arming. Arm and ArmQueue then return
// only watches that have ended. Drivers call End when the session has ended.
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
