//go:build linux || darwin

package soak

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/internal/longtest/servers"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/zktest"
)

// faultKind is a kind of fault. Without a target, inject returns a nil heal.
type faultKind struct {
	name   string
	alone  bool // never combined with other faults
	last   bool // healed after the other faults of its group
	inject func(*round) (heal func(), what string)
}

func kindsHere() []faultKind {
	kinds := slices.Concat(clientFaults, linkFaults, operatorFaults)
	for _, f := range servers.Faults(testenv.CheckSlowDisk() == nil) {
		kinds = append(kinds, faultKind{name: f.Name, alone: f.Alone, inject: func(s *round) (func(), string) { return f.Inject(s.targets) }})
	}
	return slices.DeleteFunc(kinds, func(k faultKind) bool { return !regexp.MustCompile(*faults).MatchString(k.name) })
}

// reserveMember returns a random suitable member that no other fault affects,
// or nil.
func (s *round) reserveMember(may func(*member) bool) *member {
	for _, i := range s.random.Perm(len(s.members)) {
		if m := s.members[i]; may(m) && s.targets.Reserve(m.name) {
			return m
		}
	}
	return nil
}

func anyMember(*member) bool { return true }
func proxied(m *member) bool { return m.proxies != nil }

const stoppedAtWrite = "client stopped between its last look and its write"

var clientFaults = []faultKind{
	{name: "client stopped (SIGSTOP) past its session", inject: func(s *round) (func(), string) {
		return s.stopMember(func(m *member) time.Duration {
			return m.timeout + between(s.random, 200*time.Millisecond, 2*time.Second)
		})
	}},
	{name: "client stopped (SIGSTOP) for about its lease", inject: func(s *round) (func(), string) {
		return s.stopMember(func(m *member) time.Duration { return m.timeout/2 + between(s.random, 0, m.timeout/2) })
	}},
	{name: stoppedAtWrite, alone: true, inject: stopAtWrite},
	{name: "client killed, another one started", inject: killMember},
	{name: "server with a full accept queue", inject: fillAcceptQueue},
}

func (s *round) stopMember(howLong func(*member) time.Duration) (func(), string) {
	m := s.reserveMember(anyMember)
	if m == nil {
		return nil, ""
	}
	d := howLong(m)
	s.must(m.signal(syscall.SIGSTOP))
	done := make(chan error, 1)
	time.AfterFunc(d, func() { done <- m.signal(syscall.SIGCONT) })
	return func() { s.must(<-done) }, fmt.Sprintf("%s stopped for %v of %v", m.id(), d.Round(time.Millisecond), m.timeout)
}

func killMember(s *round) (func(), string) {
	m := s.reserveMember(anyMember)
	if m == nil {
		return nil, ""
	}
	s.must(m.kill())
	return func() { s.must(s.begin(m)) }, m.id() + " killed"
}

// fillAcceptQueue makes a server unreachable without refusing connections.
func fillAcceptQueue(s *round) (func(), string) {
	i := s.random.IntN(len(s.ensemble.Servers))
	if !s.targets.Reserve(fmt.Sprint("server ", i)) {
		return nil, ""
	}
	end := s.ensemble.Servers[i].FillAcceptQueue()
	for _, m := range s.members {
		if m.proxies != nil {
			m.proxies[i].DropConnections()
		}
	}
	return end, fmt.Sprintf("server %d with a full accept queue", i)
}

// stopAtWrite stops a worker just before its write, which only fencing can then
// refuse.
func stopAtWrite(s *round) (func(), string) {
	m := s.reserveMember(func(m *member) bool { return m.actors > 0 })
	name := briefLocks[s.random.IntN(len(briefLocks)-1)]
	s.must(m.order("halt " + name))
	text, err := m.awaitLine("halting")
	if errors.Is(err, errNotSaid) {
		s.notWithin(err.Error())
		return nil, ""
	}
	s.must(err)
	token, err := strconv.ParseInt(text, 10, 64)
	s.must(err)
	s.must(m.signal(syscall.SIGSTOP))
	checked, unchecked := checkedCounter(s.dir, name), uncheckedCounter(s.dir, name)
	before, err := unchecked.read()
	s.must(err)
	s.await("another worker writes under the lock of a worker that is stopped", func() bool {
		now, err := unchecked.read()
		s.must(err)
		with, err := checked.read()
		s.must(err)
		return now.Writes > before.Writes && with.Token > token
	})
	s.must(m.order("write")) // the worker reads it when resumed
	s.must(m.signal(syscall.SIGCONT))
	if s.diverged() {
		return nil, ""
	}
	wrote, err := m.awaitLine("wrote")
	s.must(err)
	if wrote != "false" {
		s.violation("%s was stopped with token %d past its session, and the counter that checks took its write", m.id(), token)
	}
	return func() {}, fmt.Sprintf("%s stopped just before it wrote under %s", m.id(), name)
}

var linkFaults = []faultKind{
	{name: "client cut off from all servers", inject: links((*zktest.Proxy).Cut)},
	{name: "client cut off on the way to the servers", inject: links(func(p *zktest.Proxy) { p.CutOneWay(testenv.ToServer) })},
	{name: "client cut off on the way back", inject: links(func(p *zktest.Proxy) { p.CutOneWay(testenv.ToClient) })},
	{name: "client cut off from one server", inject: links(func(p *zktest.Proxy) {
		if p.Connections() > 0 {
			p.Cut()
		}
	})},
	{name: "client's connections broken", inject: links((*zktest.Proxy).DropConnections)},
	{name: "delay of a client", inject: links(func(p *zktest.Proxy) { p.SetDelay(time.Second) })},
	{name: "requests lost", inject: links(func(p *zktest.Proxy) { loseSome(p.LoseRequest) })},
	{name: "replies lost", inject: links(func(p *zktest.Proxy) { loseSome(p.LoseReply) })},
	{name: "replies held back", inject: links(func(p *zktest.Proxy) { p.HoldReplies(zktest.Op(zktest.OpMulti)) })},
	{name: "requests held back", inject: links(func(p *zktest.Proxy) { p.HoldRequests(zktest.Op(zktest.OpMulti)) })},
}

func links(hit func(*zktest.Proxy)) func(*round) (func(), string) {
	return func(s *round) (func(), string) {
		m := s.reserveMember(proxied)
		if m == nil {
			return nil, ""
		}
		for _, p := range m.proxies {
			hit(p)
		}
		return m.heal, m.id()
	}
}

func loseSome(lose func(func(int32) bool) <-chan struct{}) {
	for range 6 {
		lose(zktest.Op(zktest.OpMulti, zktest.OpDelete, zktest.OpGetChildren2, zktest.OpGetData, zktest.OpSync))
	}
}
