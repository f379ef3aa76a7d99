package dlocktest

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

var aheadSabotages = []sabotage{
	{"lists before it creates", "two requests that are no transaction",
		on(faults.OpCreate, func(r *request, send func()) {
			before, _ := r.s.List(r.ctx, r.queue)
			runtime.Gosched()
			r.spec.Predecessor = nil
			send()
			r.joined.Known, r.joined.Ahead = true, before
		})},
	{"always says that no node is ahead", "a field that is always empty, tried with one client at a time", tells(nothing)},
	{"returns only the writers ahead", "SQL: one condition too many in a WHERE",
		tells(only(func(n driver.Node) bool { return strings.Contains(n.Name, "-W-") }))},
	{"returns only those nodes ahead that have names of its own kind", "a parser of names where the contract asks for any sequenced node",
		tells(only(func(n driver.Node) bool { return strings.Contains(n.Name, "-W-") || strings.Contains(n.Name, "-R-") }))},
	{"returns only the last of the nodes ahead", "SQL: ORDER BY seq DESC LIMIT 1",
		tells(func(ahead []driver.Node, _ driver.Node) []driver.Node { return ahead[max(0, len(ahead)-1):] })},
	{"returns the nodes ahead in the wrong order", "Redis: ZREVRANGE, from its own node to the head",
		tells(func(ahead []driver.Node, _ driver.Node) []driver.Node {
			ahead = slices.Clone(ahead)
			slices.Reverse(ahead)
			return ahead
		})},
	{"returns the new node among the nodes ahead", "a list after the create, not cut at the own node",
		tells(func(ahead []driver.Node, own driver.Node) []driver.Node { return append(slices.Clone(ahead), own) })},
	{"returns the nodes that were ahead of an earlier node", "a cache of the last list",
		func(s *faulty) {
			var mu sync.Mutex
			seen := make(map[string][]driver.Node)
			s.after(faults.OpCreate, func(r *request) {
				mu.Lock()
				defer mu.Unlock()
				if old := seen[r.queue]; len(old) > 0 && len(r.joined.Ahead) > 0 {
					r.joined.Ahead = old
				}
				seen[r.queue] = slices.Clone(r.joined.Ahead)
			})
		}},
	{"lists after it creates, and never says that a node is behind", "two requests, of which the second is late",
		all(unarmed, after(faults.OpCreate, func(r *request) {
			time.Sleep(rand.N(2 * time.Millisecond))
			nodes, err := r.s.List(r.ctx, r.queue)
			own := slices.Index(nodes, r.joined.Node)
			if r.joined.Known = err == nil && own >= 0; r.joined.Known {
				r.joined.Ahead = nodes[:own]
			}
		}))},
	{"chooses the predecessor itself", "a script on the server that arms a watch of the node before the own one, and does not call Predecessor",
		on(faults.OpCreate, func(r *request, send func()) {
			if behind := r.spec.Predecessor; behind != nil {
				r.spec.Predecessor = func(ahead []driver.Node) int { return min(behind(ahead), 0) }
			}
			send()
		})},
	{"calls Predecessor with all nodes of the queue", "a list after the create, not cut at the own node",
		armsItself(func(r *request, behind func([]driver.Node) int) {
			if nodes, _ := r.s.List(r.ctx, r.queue); len(nodes) > 0 {
				if i := behind(nodes); i >= 0 {
					r.watch, _ = r.s.Watch(r.ctx, r.queue, r.joined.Place, nodes[i])
				}
			}
		})},
	{"arms a watch in Create although the caller wants none", "a script that does the same in each call",
		after(faults.OpCreate, func(r *request) {
			if r.watch.C == nil {
				r.watch, _ = r.s.Watch(r.ctx, r.queue, r.joined.Place)
			}
		})},
	{"creates and lists, and arms the watch after that", "three requests in one method: what happens between the last two is missed",
		armsItself(func(r *request, behind func([]driver.Node) int) {
			i := behind(r.joined.Ahead)
			if i < 0 {
				return
			}
			holdBriefly()
			var ahead []driver.Node // empty if gone, to miss the removal
			if there(r.s, r.queue, r.joined.Ahead[i].Name) {
				ahead = append(ahead, r.joined.Ahead[i])
			}
			r.watch, _ = r.s.Watch(r.ctx, r.queue, r.joined.Place, ahead...)
		})},
	{"arms in Create a watch of the node ahead only", "two functions that arm watches, one of which leaves out the own node",
		on(faults.OpCreate, func(r *request, send func()) {
			var chosen driver.Node
			if behind := r.spec.Predecessor; behind != nil {
				r.spec.Predecessor = func(ahead []driver.Node) int {
					i := behind(ahead)
					if i >= 0 {
						chosen = ahead[i]
					}
					return i
				}
			}
			send()
			r.watch = passIf(r.s, r.watch, func() bool { return !there(r.s, r.queue, chosen.Name) })
		})},
}

// tells makes Create return the result of a function as the nodes ahead.
func tells(ahead func(ahead []driver.Node, own driver.Node) []driver.Node) plant {
	return after(faults.OpCreate, func(r *request) { r.joined.Ahead = ahead(r.joined.Ahead, r.joined.Node) })
}

func nothing([]driver.Node, driver.Node) []driver.Node { return nil }

func only(counts func(driver.Node) bool) func([]driver.Node, driver.Node) []driver.Node {
	return func(ahead []driver.Node, _ driver.Node) []driver.Node {
		return slices.DeleteFunc(slices.Clone(ahead), func(n driver.Node) bool { return !counts(n) })
	}
}

func armsItself(arm func(r *request, behind func([]driver.Node) int)) plant {
	return on(faults.OpCreate, func(r *request, send func()) {
		behind := r.spec.Predecessor
		r.spec.Predecessor = nil
		if send(); r.err == nil && behind != nil {
			arm(r, behind)
		}
	})
}
