// Package survey detects that the servers of a ZooKeeper ensemble have
// diverged.
//
// A ZooKeeper 3.8.0 server that was killed may disagree with the other servers
// for good: it shows a node that they do not have, or lacks one that they have
// (see the faults of ZooKeeper in docs/stores/zookeeper.md). A waiter
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
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/internal/zktest"
)

const (
	count          = 8 // surveys before servers count as different
	pause          = 5 * time.Second
	sessionTimeout = 4 * time.Second
)

// view lists a server's nodes, each with its creating transaction. Nil means no
// answer.
type view map[string]bool

// Find compares the queues, given as paths, and their nodes on all servers. It
// asks several times, but stops as soon as the servers agree. It returns the
// differences that lasted, and the servers' last answers.
func Find(e *zktest.Ensemble, queues []string) (differences []string, last string) {
	all := repeat(func() (survey []view) {
		for _, server := range e.Servers {
			v, err := viewOf(server, queues)
			if err != nil {
				v = nil
			}
			survey = append(survey, v)
		}
		return survey
	}, func() { time.Sleep(pause) })
	for server, v := range all[len(all)-1] {
		last += fmt.Sprintf("server %d shows %q\n", server, slices.Sorted(maps.Keys(v)))
	}
	return differ(all), last
}

func repeat(ask func() []view, pause func()) [][]view {
	all := [][]view{ask()}
	for len(all) < count && !agree(all[len(all)-1]) {
		pause()
		all = append(all, ask())
	}
	return all
}

func agree(survey []view) bool {
	return !slices.ContainsFunc(survey, func(v view) bool { return v == nil || !maps.Equal(v, survey[0]) })
}

// differ returns the nodes that one server always shows and another never. A
// missing answer yields nothing, because the silent server may merely lag.
func differ(all [][]view) (differences []string) {
	shown := make(map[string][]int) // by node, then server: how often shown
	for _, survey := range all {
		for server, v := range survey {
			if v == nil {
				return nil
			}
			for n := range v {
				if shown[n] == nil {
					shown[n] = make([]int, len(survey))
				}
				shown[n][server]++
			}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(shown)) {
		if times := shown[n]; slices.Contains(times, count) && slices.Contains(times, 0) {
			differences = append(differences, fmt.Sprintf("%s: the servers show it %v times of %d", n, times, count))
		}
	}
	return differences
}

// viewOf makes the server catch up with its leader, and returns what it shows.
func viewOf(server *zktest.Server, queues []string) (view, error) {
	conn, end, err := zktest.Connect(sessionTimeout, server.Addr())
	if err != nil {
		return nil, err
	}
	defer end()
	if _, err := conn.Sync("/"); err != nil {
		return nil, err
	}
	v := make(view)
	for _, queue := range queues {
		nodes, _, err := conn.Children(queue)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return nil, err
		}
		paths := []string{queue}
		for _, n := range nodes {
			paths = append(paths, queue+"/"+n)
		}
		for _, path := range paths {
			exists, stat, err := conn.Exists(path)
			if err != nil {
				return nil, err
			}
			if exists {
				v[fmt.Sprintf("%s (transaction %#x)", path, stat.Czxid)] = true
			}
		}
	}
	return v, nil
}
