package dlocktest

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

var aheadSabotages = []sabotage{
	{"lists before it creates", "two requests that are no transaction",
		of(func(s base) racyAhead { return racyAhead{s} })},
	{"always says that no node is ahead", "a field that is always empty, tried with one client at a time",
		tells(func([]driver.Node, driver.Node) []driver.Node { return nil })},
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
		of(func(s base) *staleAhead { return &staleAhead{base: s, seen: make(map[string][]driver.Node)} })},
	{"lists after it creates, and never says that a node is behind", "two requests, of which the second is late",
		of(func(s base) listsLate { return listsLate{s} })},
	{"chooses the predecessor itself", "a script on the server that arms a watch of the node before the own one, and does not call Predecessor",
		of(func(s base) guessesBehind { return guessesBehind{s} })},
	{"calls Predecessor with all nodes of the queue", "a list after the create, not cut at the own node",
		of(func(s base) asksAboutAll { return asksAboutAll{s} })},
	{"arms a watch in Create although the caller wants none", "a script that does the same in each call",
		of(func(s base) armsAlways { return armsAlways{s} })},
	{"creates and lists, and arms the watch after that", "three requests in one method: what happens between the last two is missed",
		of(func(s base) armsLate { return armsLate{s} })},
	{"arms in Create a watch of the node ahead only", "two functions that arm watches, one of which leaves out the own node",
		of(func(s base) armsAheadOnly { return armsAheadOnly{s} })},
}

// tells wraps sessions so that Create returns what the function ahead makes of
// the list of nodes ahead.
func tells(ahead func(ahead []driver.Node, own driver.Node) []driver.Node) wrap {
	return of(func(s base) *lies { return &lies{s, ahead} })
}

func only(counts func(driver.Node) bool) func([]driver.Node, driver.Node) []driver.Node {
	return func(ahead []driver.Node, _ driver.Node) []driver.Node {
		return slices.DeleteFunc(slices.Clone(ahead), func(n driver.Node) bool { return !counts(n) })
	}
}

type lies struct {
	base
	ahead func(ahead []driver.Node, own driver.Node) []driver.Node
}

func (s *lies) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.base.Create(ctx, queue, n)
	if j.Known {
		j.Ahead = s.ahead(j.Ahead, j.Node)
	}
	return j, err
}

type racyAhead struct{ base }

func (s racyAhead) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	before, err := s.List(ctx, queue)
	if err != nil {
		return driver.Joined{}, err
	}
	runtime.Gosched()
	n.Predecessor = nil
	j, err := s.base.Create(ctx, queue, n)
	j.Known, j.Ahead = true, before
	return j, err
}

// listsLate is a session whose Create lists the queue some time after it has
// created the node.
type listsLate struct{ base }

func (s listsLate) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	n.Predecessor = nil
	j, err := s.base.Create(ctx, queue, n)
	if err != nil {
		return j, err
	}
	time.Sleep(rand.N(2 * time.Millisecond))
	nodes, err := s.List(ctx, queue)
	own := slices.Index(nodes, j.Node)
	if j.Known = err == nil && own >= 0; j.Known {
		j.Ahead = nodes[:own]
	}
	return j, nil
}

type staleAhead struct {
	base
	mu   sync.Mutex
	seen map[string][]driver.Node
}

func (s *staleAhead) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.base.Create(ctx, queue, n)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || !j.Known {
		return j, err
	}
	if seen := s.seen[queue]; len(seen) > 0 && len(j.Ahead) > 0 {
		j.Ahead = seen
	}
	s.seen[queue] = slices.Clone(j.Ahead)
	return j, err
}

// guessesBehind is a session whose Create watches the first node of the queue
// instead of the node chosen by Predecessor.
type guessesBehind struct{ base }

func (s guessesBehind) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	if behind := n.Predecessor; behind != nil {
		n.Predecessor = func(ahead []driver.Node) int { return min(behind(ahead), 0) }
	}
	return s.base.Create(ctx, queue, n)
}

type asksAboutAll struct{ base }

func (s asksAboutAll) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.base.Create(ctx, queue, driver.NodeSpec{Prefix: n.Prefix, Data: n.Data})
	if err != nil || n.Predecessor == nil {
		return j, err
	}
	if nodes, _ := s.List(ctx, queue); len(nodes) > 0 {
		if i := n.Predecessor(nodes); i >= 0 {
			j.Watch, _ = s.Watch(ctx, queue, j.Place, nodes[i])
		}
	}
	return j, nil
}

type armsAlways struct{ base }

func (s armsAlways) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.base.Create(ctx, queue, n)
	if err == nil && j.Watch.C == nil {
		j.Watch, _ = s.Watch(ctx, queue, j.Place)
	}
	return j, err
}

// armsLate is a session whose Create lists the queue some time before it arms
// the watch, so that it misses changes in between.
type armsLate struct{ base }

func (s armsLate) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	behind := n.Predecessor
	n.Predecessor = nil
	j, err := s.base.Create(ctx, queue, n)
	if err != nil || behind == nil || !j.Known {
		return j, err
	}
	i := behind(j.Ahead)
	if i < 0 {
		return j, nil
	}
	holdBriefly()
	if !there(s, queue, j.Ahead[i].Name) {
		j.Watch, _ = s.Watch(ctx, queue, j.Place) // does not end if the node ahead is already gone
	} else {
		j.Watch, _ = s.Watch(ctx, queue, j.Place, j.Ahead[i])
	}
	return j, nil
}

type armsAheadOnly struct{ base }

func (s armsAheadOnly) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	var chosen driver.Node
	if behind := n.Predecessor; behind != nil {
		n.Predecessor = func(ahead []driver.Node) int {
			i := behind(ahead)
			if i >= 0 {
				chosen = ahead[i]
			}
			return i
		}
	}
	j, err := s.base.Create(ctx, queue, n)
	j.Watch = passIf(s, j.Watch, func() bool { return !there(s, queue, chosen.Name) })
	return j, err
}
