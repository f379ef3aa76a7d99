// Package survey detects that the servers of a ZooKeeper ensemble have
// diverged.
//
// A ZooKeeper 3.8.0 server that was killed may disagree with the other servers
// for good: it shows a node that they do not have, or lacks one that they have
// (see the faults of ZooKeeper in docs/operate/operating.md). A waiter
// connected to it may wait for ever, which no lock can prevent. Therefore a
// test that kills servers and gets stuck asks every server several times over
// some 40 seconds. Servers that disagree about the same node each time have
// diverged.
package survey

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/internal/zktest"
)

// Node is a node as shown by a server. The transaction tells a node from one
// that was created again under the same name.
type Node struct {
	Path        string
	Transaction int64 // ID of the transaction that created the node
	Session     int64 // ID of the owning session; 0 for a queue
}

func (n Node) String() string {
	return fmt.Sprintf("%s (made by transaction %#x, of session %#x)", n.Path, n.Transaction, uint64(n.Session))
}

// View is the set of nodes that one server shows. It is nil if the server did
// not answer.
type View map[Node]bool

// Survey holds the views of all servers, asked once each.
type Survey []View

// [Differences] takes [Count] surveys, between which the caller waits for
// [Pause].
const (
	Count = 8
	Pause = 5 * time.Second
)

const sessionTimeout = 4 * time.Second

// Differences returns the lasting differences: nodes that one server shows in
// every survey and another one in none.
//
// A single survey may differ between servers that agree, because they are asked
// one after the other while clients carry on. If any answer is missing,
// Differences returns nothing, because that server may merely be behind.
func Differences(all []Survey) (differences []string) {
	if len(all) < Count {
		return nil
	}
	for _, s := range all {
		if slices.ContainsFunc(s, func(v View) bool { return v == nil }) {
			return nil
		}
	}
	for n := range allNodes(all[0]) {
		var always, never []int
		for server := range all[0] {
			switch timesShown(all, server, n) {
			case len(all):
				always = append(always, server)
			case 0:
				never = append(never, server)
			}
		}
		if len(always) > 0 && len(never) > 0 {
			differences = append(differences, fmt.Sprintf("servers %v show %v, servers %v do not", always, n, never))
		}
	}
	slices.Sort(differences)
	return differences
}

func allNodes(s Survey) View {
	all := make(View)
	for _, v := range s {
		maps.Copy(all, v)
	}
	return all
}

func timesShown(all []Survey, server int, n Node) (times int) {
	for _, s := range all {
		if s[server][n] {
			times++
		}
	}
	return times
}

// Repeat makes as many surveys as [Differences] needs by calling ask. Between
// two of them it calls pause, which reports whether to go on. It stops early if
// all servers agree.
func Repeat(ask func() Survey, pause func() bool) []Survey {
	all := []Survey{ask()}
	for len(all) < Count && !all[len(all)-1].Agree() && pause() {
		all = append(all, ask())
	}
	return all
}

// Agree reports whether all servers answered and show the same nodes.
func (s Survey) Agree() bool {
	return !slices.ContainsFunc(s, func(v View) bool { return v == nil || !maps.Equal(v, s[0]) })
}

// Ask asks every server for the given queues, which are paths, and for their
// nodes.
func Ask(e *zktest.Ensemble, queues []string) Survey {
	var all Survey
	for _, server := range e.Servers {
		view, err := viewOf(server, queues)
		if err != nil {
			view = nil
		}
		all = append(all, view)
	}
	return all
}

// viewOf lists queues on one server once it has caught up with the leader.
func viewOf(server *zktest.Server, queues []string) (View, error) {
	conn, end, err := zktest.Connect(sessionTimeout, server.Addr())
	if err != nil {
		return nil, err
	}
	defer end()
	if _, err := conn.Sync("/"); err != nil {
		return nil, err
	}
	view := make(View)
	for _, queue := range queues {
		if err := view.add(conn, queue); err != nil {
			return nil, err
		}
		nodes, _, err := conn.Children(queue)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return nil, err
		}
		for _, n := range nodes {
			if err := view.add(conn, queue+"/"+n); err != nil {
				return nil, err
			}
		}
	}
	return view, nil
}

// add adds the node unless the server no longer has it.
func (v View) add(conn *zk.Conn, path string) error {
	exists, stat, err := conn.Exists(path)
	if err == nil && exists {
		v[Node{Path: path, Transaction: stat.Czxid, Session: stat.EphemeralOwner}] = true
	}
	return err
}

// String lists the nodes that each server shows, one per line.
func (s Survey) String() string {
	var b strings.Builder
	for i, view := range s {
		if view == nil {
			fmt.Fprintf(&b, "server %d does not answer\n", i)
		}
		for _, n := range slices.SortedFunc(maps.Keys(view), comparePaths) {
			fmt.Fprintf(&b, "server %d shows %v\n", i, n)
		}
	}
	return b.String()
}

func comparePaths(a, b Node) int { return strings.Compare(a.Path, b.Path) }
