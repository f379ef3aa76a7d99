//go:build linux || darwin

package soak

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

// shownNode is a node as a server shows it. A node that is removed and made
// again differs from the first one in its transaction.
type shownNode struct {
	path        string
	transaction int64 // the id of the transaction that made the node
	session     int64 // the id of the session that the node belongs to; 0 for the node of a queue
}

func (n shownNode) String() string {
	return fmt.Sprintf("%s (made by transaction %#x, of session %#x)", n.path, n.transaction, uint64(n.session))
}

// serverView is the set of nodes that one server shows. It is nil if the server
// did not answer.
type serverView map[shownNode]bool

// survey holds what the servers showed when the test asked each of them once:
// one serverView for each server, in the order of the servers.
type survey []serverView

// A difference between servers counts only if all of surveyCount surveys show
// it. Between two surveys the test waits for surveyPause.
const (
	surveyCount = 8
	surveyPause = 5 * time.Second
)

// divergence returns the lasting differences between servers: the nodes that
// one server shows in every survey, and another server in none.
//
// A survey asks one server after the other while workers go on, and each server
// first catches up with the leader. So one survey alone may differ between
// servers that agree, but no node stays different over all surveys. If any
// survey lacks the answer of a server, divergence returns nothing, because that
// server may be behind.
func divergence(all []survey) (differences []string) {
	if len(all) < surveyCount {
		return nil
	}
	for _, s := range all {
		if slices.ContainsFunc(s, func(v serverView) bool { return v == nil }) {
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

func allNodes(s survey) serverView {
	all := make(serverView)
	for _, v := range s {
		maps.Copy(all, v)
	}
	return all
}

func timesShown(all []survey, server int, n shownNode) (times int) {
	for _, s := range all {
		if s[server][n] {
			times++
		}
	}
	return times
}

// repeatSurvey makes as many surveys as a verdict needs. Between two of them it
// calls the function pause, which reports whether to go on. It stops at the
// first survey in which all servers agree.
func repeatSurvey(ask func() survey, pause func() bool) []survey {
	all := []survey{ask()}
	for len(all) < surveyCount && !agree(all[len(all)-1]) && pause() {
		all = append(all, ask())
	}
	return all
}

// agree reports whether all servers answered and show the same nodes.
func agree(s survey) bool {
	return !slices.ContainsFunc(s, func(v serverView) bool { return v == nil || !maps.Equal(v, s[0]) })
}

// survey asks every server for the queues of the round and for what is in them.
func (s *round) survey() survey {
	var all survey
	for _, server := range s.ensemble.Servers {
		view, err := viewOf(server, s.chroot)
		if err != nil {
			view = nil
		}
		all = append(all, view)
	}
	return all
}

// viewOf lists the queues on one server, after the server has caught up with the
// leader.
func viewOf(server *zktest.Server, chroot string) (serverView, error) {
	conn, end, err := zktest.Connect(longestTimeout, server.Addr())
	if err != nil {
		return nil, err
	}
	defer end()
	if _, err := conn.Sync(chroot); err != nil {
		return nil, err
	}
	view := make(serverView)
	for _, name := range lockNames {
		queue := chroot + "/" + name
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

// add adds the node with this path to the view, if the server still shows the
// node.
func (v serverView) add(conn *zk.Conn, path string) error {
	exists, stat, err := conn.Exists(path)
	if err == nil && exists {
		v[shownNode{path: path, transaction: stat.Czxid, session: stat.EphemeralOwner}] = true
	}
	return err
}

// String lists what each server shows, a line for each node.
func (s survey) String() string {
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

func comparePaths(a, b shownNode) int { return strings.Compare(a.path, b.path) }

// findDivergence asks the servers whether they have diverged. It stores in
// s.differences the differences that stay. It gives up when stop is closed.
func (s *round) findDivergence(stop <-chan struct{}) {
	all := repeatSurvey(s.survey, func() bool {
		select {
		case <-stop:
			return false
		case <-time.After(surveyPause):
			return true
		}
	})
	s.differences = divergence(all)
	if s.lastSurvey = all[len(all)-1]; len(s.differences) == 0 {
		s.t.Logf("round %d: the servers have not diverged, in %d surveys:\n%v", s.number, len(all), s.lastSurvey)
	}
}

// diverged reports whether the servers were found to have diverged.
func (s *round) diverged() bool { return len(s.differences) > 0 }
