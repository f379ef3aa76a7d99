package dlocktest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/driver/watches"
)

var watchSabotages = []sabotage{
	{"watches a node that is gone already, and does not end the watch", "etcd: a watch from now on, without a look at what is there",
		all(unarmed, before(faults.OpWatch, func(r *request) {
			r.ahead = slices.DeleteFunc(slices.Clone(r.ahead), func(n driver.Node) bool { return !there(r.s, r.queue, n.Name) })
		}))},
	{"lists first, and arms the watch after that", "etcd: a watch from the present revision instead of that of the List; Redis: SUBSCRIBE after the look",
		watching(func(r *request, send func()) {
			if send(); r.err == nil && !hasNews(r.watch.C) {
				armed := time.Now().Add(2 * time.Millisecond)
				r.watch = passIf(r.s, r.watch, func() bool { return time.Now().After(armed) })
			}
		})},
	{"watches the nodes ahead and forgets its own", "a Watch that was written for the predecessor",
		watching(func(r *request, send func()) {
			if send(); r.err != nil || len(r.ahead) == 0 || !there(r.s, r.queue, r.place.Name) {
				return
			}
			said := false
			r.watch = relay(r.watch, func(cause driver.Cause, open bool, out chan<- driver.Cause) {
				if said = said || open; said || !stand(r.s, r.queue, r.ahead...) || r.s.Err() != nil {
					pass(cause, open, out)
				}
			})
		})},
	{"watches the first of several nodes only", "a loop that ends too early",
		all(unarmed, before(faults.OpWatch, func(r *request) { r.ahead = r.ahead[:min(1, len(r.ahead))] }))},
	{"does not see that its own node is gone", "no look at the node after its watch is armed",
		watching(func(r *request, send func()) {
			if send(); r.err == nil && hasNews(r.watch.C) && r.s.Err() == nil {
				r.watch = driver.NewWatch(make(chan driver.Cause), nil)
			}
		})},
	{"watches its own node by the name alone", "a table of names, in a store where names come again",
		all(unarmed, before(faults.OpWatch, func(r *request) { r.place = named(r.place) }))},
	{"watches no node that is known by name only", "looking for the node by its token",
		watching(func(r *request, send func()) {
			if send(); r.place.Token == 0 && r.err == nil && !hasNews(r.watch.C) {
				r.watch = passIf(r.s, r.watch, never)
			}
		})},
	{"watches only its own nodes by name", "looking for the node among those that the session has made",
		watchesOwn(func(r *request) { r.watch = passIf(r.s, r.watch, never) })},
	{"takes another session's node for one that is gone", "a Watch that looks first whether the session still has the node",
		watchesOwn(func(r *request) {
			r.watch.Stop()
			r.watch = watches.Ended()
		})},
	{"leaves its watches open when the session ends", "closing the connection, and nothing else",
		relaying(armings, func(r *request, w driver.Watch) driver.Watch {
			return relay(w, func(cause driver.Cause, open bool, out chan<- driver.Cause) {
				if open || r.s.Err() == nil {
					pass(cause, open, out)
				}
			})
		})},
	{"learns only of removals that drivers announce", "Redis: PUBLISH in the script that deletes, and none when a key expires; SQL: NOTIFY by the client",
		func(s *faulty) { s.announces() }},
	{"keeps only one watch for each node", "a map from name to channel",
		watchGroups(func(groups *sync.Map, key string, s *faulty, w driver.Watch) driver.Watch {
			forgotten := new(atomic.Bool)
			if old, any := groups.Swap(key, forgotten); any {
				old.(*atomic.Bool).Store(true)
			}
			return passIf(s, w, func() bool { return !forgotten.Load() })
		}, func(r *request) driver.Node { return r.place.Node })},
	{"forgets a watch when the ctx of its call ends", "one goroutine for each watch, which waits for the event or for ctx",
		relaying(armings, func(r *request, w driver.Watch) driver.Watch {
			return passIf(r.s, w, func() bool { return r.ctx.Err() == nil })
		})},
	{"stops all watches of a node when one of them is stopped", "one subscription shared by all watches of a node, and no count of them",
		watchGroups(func(groups *sync.Map, key string, s *faulty, w driver.Watch) driver.Watch {
			fate, _ := groups.LoadOrStore(key, new(atomic.Bool))
			if fate.(*atomic.Bool).Load() {
				fate = new(atomic.Bool)
				groups.Store(key, fate)
			}
			over := fate.(*atomic.Bool)
			in := passIf(s, w, func() bool { return !over.Load() })
			return driver.NewWatch(in.C, func() {
				over.Store(true)
				in.Stop()
			})
		}, func(r *request) driver.Node { return append(slices.Clone(r.ahead), driver.Node{})[0] })},
	{"panics if a watch is stopped twice", "close of a channel, without sync.Once",
		stopping(func(s *faulty) func(twice bool) {
			return func(twice bool) {
				if twice {
					select {} // hang, because a panic would end all tests
				}
			}
		})},
	{"waits for the store in Stop", "UNSUBSCRIBE, and waiting for its answer",
		stopping(func(s *faulty) func(bool) {
			whole := s.cuts()
			return func(bool) {
				select {
				case <-whole.healed():
				case <-s.Done():
				}
			}
		})},
	{"loses its watches when it is cut off", "Redis, SQL: messages are lost meanwhile",
		forgetting(faults.OpWatch, func(s *faulty, forget func()) {
			s.cut = func(now bool) {
				if now {
					forget()
				}
			}
		})},
	{"loses its watches when its connection is reset", "Redis, SQL: LISTEN and SUBSCRIBE belong to a connection",
		forgetting(faults.OpWatch, func(s *faulty, forget func()) { s.reset = forget })},
	{"trusts a connection that has fallen silent", "Redis, SQL: SUBSCRIBE and LISTEN, and neither a heartbeat on that connection nor a look now and then",
		func(s *faulty) {
			var silent atomic.Bool
			s.silenced = func() { silent.Store(true) }
			unarmed(s)
			relaying(armings, func(_ *request, w driver.Watch) driver.Watch {
				return passIf(s, w, func() bool { return !silent.Load() })
			})(s)
		}},
	{"misses the end of a node that it does not know from a notice", "etcd: after a silence, a list is compared with a copy of the queue, which lacks the nodes that came meanwhile",
		func(s *faulty) {
			var silent atomic.Bool
			s.silenced = func() { silent.Store(true) }
			s.on(faults.OpCreate, func(r *request, send func()) {
				unknown := silent.Load()
				send()
				r.watch = passIf(s, r.watch, func() bool { return !unknown })
			})
		}},
	{"compares only how many nodes the queue has", "polling with COUNT(*)",
		pollingQueues(func(_ int64, nodes []driver.Node) string { return fmt.Sprint(len(nodes)) })},
	{"makes the version of a queue from its latest token and its nodes", "polling: a node that is replaced and replaced back leaves no trace in either",
		pollingQueues(func(latest int64, nodes []driver.Node) string { return fmt.Sprint(latest, nodes) })},
	{"does not see its own changes while no other session lives", "SQLite: PRAGMA data_version does not change with the commits of the same connection",
		func(s *faulty) {
			live := inStore[atomic.Int64](s)
			live.Add(1)
			s.after(faults.OpWatchQueue, func(r *request) {
				if live.Load() == 1 {
					r.watch = passIf(s, r.watch, never)
				}
			})
			s.on(faults.OpClose, func(_ *request, send func()) {
				live.Add(-1)
				send()
			})
		}},
	{"looks only whether the name is in the queue", "polling in a store where names come again",
		watching(func(r *request, send func()) {
			nodes := append([]driver.Node{r.place.Node}, r.ahead...)
			if send(); r.err == nil && !hasNews(r.watch.C) {
				r.watch.Stop()
				r.watch = poll(r.s, func() bool { return !stand(r.s, r.queue, nodes...) })
			}
		})},
	{"sends Changed and does not close", "a channel of events, as client libraries have it",
		relaying([]faults.Op{faults.OpWatch}, func(_ *request, w driver.Watch) driver.Watch {
			return relay(w, func(cause driver.Cause, _ bool, out chan<- driver.Cause) { out <- cause })
		})},
}

func never() bool { return false }

var armings = []faults.Op{faults.OpCreate, faults.OpWatch, faults.OpWatchQueue}

// watching makes h handle calls of Watch. Create arms no watch.
func watching(h handler, more ...plant) plant {
	return all(unarmed, on(faults.OpWatch, h), all(more...))
}

// relaying makes methods return the result of through instead of their watch.
func relaying(ops []faults.Op, through func(r *request, w driver.Watch) driver.Watch) plant {
	return func(s *faulty) {
		for _, op := range ops {
			s.after(op, func(r *request) { r.watch = through(r, r.watch) })
		}
	}
}

type sequence struct {
	queue      string
	seq, epoch int64
}

func sequenceOf(queue string, n driver.Node) sequence { return sequence{queue, n.Seq, n.Epoch} }

// announces makes watches miss removals by operators and expiry, which no
// session announces.
func (s *faulty) announces() (told func(r *request) bool) {
	var mine sync.Map // the session's nodes, which Close announces
	announced := inStore[sync.Map](s)
	announce := func(r *request, send func()) {
		announced.Store(sequenceOf(r.queue, r.place.Node), true)
		send()
	}
	s.on(faults.OpDelete, announce)
	s.on(faults.OpReplace, announce)
	s.on(faults.OpClose, func(_ *request, send func()) {
		mine.Range(func(n, _ any) bool {
			announced.Store(n, true)
			return true
		})
		send()
	})
	s.after(faults.OpCreate, func(r *request) { mine.Store(sequenceOf(r.queue, r.joined.Node), true) })
	told = func(r *request) bool {
		return slices.ContainsFunc(append([]driver.Node{r.place.Node}, r.ahead...), func(n driver.Node) bool {
			_, told := announced.Load(sequenceOf(r.queue, n))
			return told
		})
	}
	watching(func(r *request, send func()) {
		if send(); r.err == nil && stand(s, r.queue, append([]driver.Node{r.place.Node}, r.ahead...)...) {
			r.watch = passIf(s, r.watch, func() bool { return told(r) })
		}
	})(s)
	return told
}

// watchesOwn calls spoil for each watch, by name, of another session's node.
func watchesOwn(spoil func(r *request)) plant {
	return func(s *faulty) {
		var mine sync.Map // the session's own nodes, by sequence
		s.after(faults.OpCreate, func(r *request) { mine.Store(sequenceOf(r.queue, r.joined.Node), true) })
		watching(func(r *request, send func()) {
			send()
			if _, own := mine.Load(sequenceOf(r.queue, r.place.Node)); !own && r.err == nil && r.place.Token == 0 && !hasNews(r.watch.C) {
				spoil(r)
			}
		})(s)
	}
}

// watchGroups replaces each watch by the result of join, by queue or node.
func watchGroups(join func(groups *sync.Map, key string, s *faulty, w driver.Watch) driver.Watch, group func(r *request) driver.Node) plant {
	return func(s *faulty) {
		var groups sync.Map
		s.after(faults.OpWatchQueue, func(r *request) { r.watch = join(&groups, r.queue, s, r.watch) })
		watching(func(r *request, send func()) {
			send()
			if n := group(r); r.err == nil && there(s, r.queue, n.Name) {
				r.watch = join(&groups, r.queue+"/"+n.Name, s, r.watch)
			}
		})(s)
	}
}

// stopping makes Stop first call stop; twice is true for a repeated Stop.
func stopping(with func(s *faulty) (stop func(twice bool))) plant {
	return func(s *faulty) {
		stop := with(s)
		unarmed(s)
		s.after(faults.OpWatch, func(r *request) {
			var stopped atomic.Bool
			w := r.watch
			r.watch = driver.NewWatch(w.C, func() {
				stop(stopped.Swap(true))
				w.Stop()
			})
		})
	}
}

// forgetting makes each call of forget silence the watches armed before it.
func forgetting(op faults.Op, when func(s *faulty, forget func())) plant {
	return func(s *faulty) {
		var times atomic.Int32
		when(s, func() { times.Add(1) })
		unarmed(s)
		s.on(op, func(r *request, send func()) {
			armed := times.Load()
			send()
			r.watch = passIf(s, r.watch, func() bool { return times.Load() == armed })
		})
	}
}

func pollingQueues(version func(latest int64, nodes []driver.Node) string) plant {
	return func(s *faulty) {
		latest := inStore[atomic.Int64](s)
		s.after(faults.OpCreate, func(r *request) { raise(latest, r.joined.Token) })
		s.after(faults.OpWatchQueue, func(r *request) {
			list := func() string {
				nodes, _ := s.List(context.Background(), r.queue)
				return version(latest.Load(), nodes)
			}
			armed := list()
			r.watch.Stop()
			r.watch = poll(s, func() bool { return list() != armed })
		})
	}
}

func poll(s base, over func() bool) driver.Watch {
	out, quit := make(chan driver.Cause), make(chan struct{})
	go func() {
		defer close(out)
		for s.Err() == nil && !over() {
			select {
			case <-quit:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	return driver.NewWatch(out, sync.OnceFunc(func() { close(quit) }))
}
