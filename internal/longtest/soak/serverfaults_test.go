//go:build linux || darwin

package soak

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/zktest"
)

// faultKind is a kind of fault. Its function inject injects a fault. It returns
// a function that heals the fault, and a description of the target. The
// function heal is nil if no target was left.
type faultKind struct {
	name   string
	alone  bool // never combined with other faults
	last   bool // healed after the other faults of its group
	inject func(*round) (heal func(), what string)
}

// kindsHere returns the kinds of faults that this machine supports and that are
// selected by the flag.
func kindsHere() []faultKind {
	kinds := slices.Concat(serverFaults, peerFaults, clientFaults, linkFaults, operatorFaults)
	if testenv.CheckSlowDisk() == nil {
		kinds = append(kinds, diskFaults...)
	}
	return slices.DeleteFunc(kinds, func(k faultKind) bool { return !regexp.MustCompile(*faults).MatchString(k.name) })
}

// reserve claims a target for one fault of the current group. It returns false
// if another fault has claimed it.
func (s *round) reserve(what string) bool {
	if s.reserved[what] {
		return false
	}
	s.reserved[what] = true
	return true
}

// reserveServer picks a random server for which may returns true and which no
// other fault of the group affects.
func (s *round) reserveServer(may func(i int) bool) (int, bool) {
	for _, i := range s.random.Perm(len(s.ensemble.Servers)) {
		if may(i) && s.reserve(fmt.Sprint("server ", i)) {
			return i, true
		}
	}
	return 0, false
}

func (s *round) anyServer(int) bool          { return true }
func (s *round) follower(i int) bool         { return i != s.leader }
func (s *round) theLeader(i int) bool        { return i == s.leader }
func (s *round) server(i int) *zktest.Server { return s.ensemble.Servers[i] }

func (s *round) serverName(i int) string {
	if i == s.leader {
		return fmt.Sprintf("server %d (the leader)", i)
	}
	return fmt.Sprintf("server %d", i)
}

// serverFaults hit server processes.
var serverFaults = []faultKind{
	{name: "follower killed, started again", inject: killServer((*round).follower)},
	{name: "leader killed, started again", inject: killServer((*round).theLeader)},
	{name: "all servers killed and started again, one by one", alone: true, inject: rollingKill},
	{name: "follower stopped (SIGSTOP)", inject: stopServer((*round).follower)},
	{name: "leader stopped (SIGSTOP)", inject: stopServer((*round).theLeader)},
	{name: "server with a full accept queue", inject: fillAcceptQueue},
}

func killServer(which func(*round, int) bool) func(*round) (func(), string) {
	return func(s *round) (func(), string) {
		i, ok := s.reserveServer(func(i int) bool { return which(s, i) })
		if !ok {
			return nil, ""
		}
		s.server(i).Kill()
		return s.server(i).Restart, s.serverName(i) + " killed"
	}
}

func rollingKill(s *round) (func(), string) {
	for i := range s.ensemble.Servers {
		s.server(i).Kill()
		time.Sleep(between(s.random, 0, time.Second))
		s.server(i).Restart()
		s.ensemble.WaitQuorum(s.t)
	}
	return func() {}, "all servers killed one by one"
}

func stopServer(which func(*round, int) bool) func(*round) (func(), string) {
	return func(s *round) (func(), string) {
		i, ok := s.reserveServer(func(i int) bool { return which(s, i) })
		if !ok {
			return nil, ""
		}
		s.server(i).Pause()
		return s.server(i).Resume, s.serverName(i) + " stopped"
	}
}

// fillAcceptQueue makes a server unreachable without refusing connections. It
// pauses the server and fills its queue of new connections.
func fillAcceptQueue(s *round) (func(), string) {
	i, ok := s.reserveServer(s.anyServer)
	if !ok {
		return nil, ""
	}
	end := s.server(i).FillAcceptQueue()
	for _, m := range s.members {
		if m.proxies != nil {
			m.proxies[i].DropConnections()
		}
	}
	return end, s.serverName(i) + " with a full accept queue"
}

var peerFaults = []faultKind{
	{name: "follower cut off from all servers", inject: peers(func(s *round) string {
		i := s.randomFollower()
		s.ensemble.CutServer(i)
		return s.serverName(i) + " cut off from the others"
	})},
	{name: "leader cut off from all servers", inject: peers(func(s *round) string {
		s.ensemble.CutServer(s.leader)
		return s.serverName(s.leader) + " cut off from the others"
	})},
	{name: "link between two servers cut", inject: peers(func(s *round) string {
		two := s.random.Perm(len(s.ensemble.Servers))
		s.ensemble.CutLink(two[0], two[1])
		return fmt.Sprintf("link between %s and %s cut", s.serverName(two[0]), s.serverName(two[1]))
	})},
	{name: "link from leader to follower cut one way", inject: peers(func(s *round) string {
		i := s.randomFollower()
		s.ensemble.CutOneWay(s.leader, i)
		return fmt.Sprintf("link from the leader to %s cut", s.serverName(i))
	})},
	{name: "link from follower to leader cut one way", inject: peers(func(s *round) string {
		i := s.randomFollower()
		s.ensemble.CutOneWay(i, s.leader)
		return fmt.Sprintf("link from %s to the leader cut", s.serverName(i))
	})},
	{name: "leader cut off on the way to all followers", inject: peers(func(s *round) string {
		for i := range s.ensemble.Servers {
			if i != s.leader {
				s.ensemble.CutOneWay(s.leader, i)
			}
		}
		return "links from the leader cut"
	})},
	{name: "delay between servers", inject: peers(func(s *round) string {
		d := between(s.random, 20*time.Millisecond, 600*time.Millisecond)
		s.ensemble.SetDelay(d)
		return fmt.Sprintf("delay of %v between servers", d.Round(time.Millisecond))
	})},
}

// peers returns a fault that cuts or delays connections between servers. A
// group of faults has at most one of these.
func peers(cut func(*round) string) func(*round) (func(), string) {
	return func(s *round) (func(), string) {
		if !s.reserve("peers") {
			return nil, ""
		}
		return s.ensemble.Heal, cut(s)
	}
}

func (s *round) randomFollower() int {
	i := s.random.IntN(len(s.ensemble.Servers) - 1)
	if i >= s.leader {
		i++
	}
	return i
}

var diskFaults = []faultKind{
	{name: "slow disk of one server", inject: func(s *round) (func(), string) {
		return s.slowDisks([]int{s.random.IntN(len(s.ensemble.Servers))})
	}},
	{name: "slow disk of the leader", inject: func(s *round) (func(), string) { return s.slowDisks([]int{s.leader}) }},
	{name: "slow disks of all servers", inject: func(s *round) (func(), string) { return s.slowDisks([]int{0, 1, 2}) }},
}

func (s *round) slowDisks(servers []int) (func(), string) {
	if !s.reserve("disks") {
		return nil, ""
	}
	d := between(s.random, 100*time.Millisecond, 1500*time.Millisecond)
	for _, i := range servers {
		s.server(i).SetDiskDelay(d)
	}
	return func() {
		for _, i := range servers {
			s.server(i).SetDiskDelay(0)
		}
	}, fmt.Sprintf("disk slower by %v: servers %v", d.Round(time.Millisecond), servers)
}
