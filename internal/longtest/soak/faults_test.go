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

// faultKind is something that goes wrong. inject does it and returns what puts it right, and what was hit in words; it
// returns nil if everybody whom it could hit suffers from something else already.
type faultKind struct {
	name   string
	alone  bool // not together with others
	last   bool // ends only when the others have been put right
	inject func(*sitting) (heal func(), what string)
}

// kindsHere returns all kinds of faults that this machine can have.
func kindsHere() []faultKind {
	kinds := slices.Concat(serverFaults, peerFaults, clientFaults, linkFaults, operatorFaults)
	if testenv.CheckSlowDisk() == nil {
		kinds = append(kinds, diskFaults...)
	}
	return slices.DeleteFunc(kinds, func(k faultKind) bool { return !regexp.MustCompile(*faults).MatchString(k.name) })
}

// claim takes something for one fault of a group.
func (s *sitting) claim(what string) bool {
	if s.claimed[what] {
		return false
	}
	s.claimed[what] = true
	return true
}

// claimServer draws a server that is not hit yet and may be.
func (s *sitting) claimServer(may func(i int) bool) (int, bool) {
	for _, i := range s.random.Perm(len(s.ensemble.Servers)) {
		if may(i) && s.claim(fmt.Sprint("server ", i)) {
			return i, true
		}
	}
	return 0, false
}

func (s *sitting) anyServer(int) bool          { return true }
func (s *sitting) follower(i int) bool         { return i != s.leader }
func (s *sitting) theLeader(i int) bool        { return i == s.leader }
func (s *sitting) server(i int) *zktest.Server { return s.ensemble.Servers[i] }

func (s *sitting) serverName(i int) string {
	if i == s.leader {
		return fmt.Sprintf("server %d (the leader)", i)
	}
	return fmt.Sprintf("server %d", i)
}

// serverFaults hit the process of a server.
var serverFaults = []faultKind{
	{name: "follower killed, started again", inject: killServer((*sitting).follower)},
	{name: "leader killed, started again", inject: killServer((*sitting).theLeader)},
	{name: "all servers killed and started again, one by one", alone: true, inject: rollingKill},
	{name: "follower stopped (SIGSTOP)", inject: stopServer((*sitting).follower)},
	{name: "leader stopped (SIGSTOP)", inject: stopServer((*sitting).theLeader)},
	{name: "server with a full accept queue", inject: fillAcceptQueue},
}

func killServer(which func(*sitting, int) bool) func(*sitting) (func(), string) {
	return func(s *sitting) (func(), string) {
		i, ok := s.claimServer(func(i int) bool { return which(s, i) })
		if !ok {
			return nil, ""
		}
		s.server(i).Kill()
		return s.server(i).Restart, s.serverName(i) + " killed"
	}
}

func rollingKill(s *sitting) (func(), string) {
	for i := range s.ensemble.Servers {
		s.server(i).Kill()
		time.Sleep(between(s.random, 0, time.Second))
		s.server(i).Restart()
		s.ensemble.WaitQuorum(s.t)
	}
	return func() {}, "all servers killed one by one"
}

func stopServer(which func(*sitting, int) bool) func(*sitting) (func(), string) {
	return func(s *sitting) (func(), string) {
		i, ok := s.claimServer(func(i int) bool { return which(s, i) })
		if !ok {
			return nil, ""
		}
		s.server(i).Pause()
		return s.server(i).Resume, s.serverName(i) + " stopped"
	}
}

// fillAcceptQueue stops a server, breaks its clients' connections and lets no new ones in.
func fillAcceptQueue(s *sitting) (func(), string) {
	i, ok := s.claimServer(s.anyServer)
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

// peerFaults hit what servers say to each other.
var peerFaults = []faultKind{
	{name: "follower cut off from all servers", inject: peers(func(s *sitting) string {
		i := s.randomFollower()
		s.ensemble.CutServer(i)
		return s.serverName(i) + " cut off from the others"
	})},
	{name: "leader cut off from all servers", inject: peers(func(s *sitting) string {
		s.ensemble.CutServer(s.leader)
		return s.serverName(s.leader) + " cut off from the others"
	})},
	{name: "link between two servers cut", inject: peers(func(s *sitting) string {
		two := s.random.Perm(len(s.ensemble.Servers))
		s.ensemble.CutLink(two[0], two[1])
		return fmt.Sprintf("link between %s and %s cut", s.serverName(two[0]), s.serverName(two[1]))
	})},
	{name: "link from leader to follower cut one way", inject: peers(func(s *sitting) string {
		i := s.randomFollower()
		s.ensemble.CutOneWay(s.leader, i)
		return fmt.Sprintf("link from the leader to %s cut", s.serverName(i))
	})},
	{name: "link from follower to leader cut one way", inject: peers(func(s *sitting) string {
		i := s.randomFollower()
		s.ensemble.CutOneWay(i, s.leader)
		return fmt.Sprintf("link from %s to the leader cut", s.serverName(i))
	})},
	{name: "leader heard by nobody", inject: peers(func(s *sitting) string {
		for i := range s.ensemble.Servers {
			if i != s.leader {
				s.ensemble.CutOneWay(s.leader, i)
			}
		}
		return "links from the leader cut"
	})},
	{name: "delay between servers", inject: peers(func(s *sitting) string {
		d := between(s.random, 20*time.Millisecond, 600*time.Millisecond)
		s.ensemble.SetDelay(d)
		return fmt.Sprintf("delay of %v between servers", d.Round(time.Millisecond))
	})},
}

// peers makes one fault of that kind possible in a group.
func peers(cut func(*sitting) string) func(*sitting) (func(), string) {
	return func(s *sitting) (func(), string) {
		if !s.claim("peers") {
			return nil, ""
		}
		return s.ensemble.Heal, cut(s)
	}
}

func (s *sitting) randomFollower() int {
	i := s.random.IntN(len(s.ensemble.Servers) - 1)
	if i >= s.leader {
		i++
	}
	return i
}

// diskFaults make servers wait for their disks.
var diskFaults = []faultKind{
	{name: "slow disk of one server", inject: func(s *sitting) (func(), string) {
		return s.slowDisks([]int{s.random.IntN(len(s.ensemble.Servers))})
	}},
	{name: "slow disk of the leader", inject: func(s *sitting) (func(), string) { return s.slowDisks([]int{s.leader}) }},
	{name: "slow disks of all servers", inject: func(s *sitting) (func(), string) { return s.slowDisks([]int{0, 1, 2}) }},
}

func (s *sitting) slowDisks(servers []int) (func(), string) {
	if !s.claim("disks") {
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
