package main

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock/bench/internal/work"
)

// setup describes the servers to measure with, and what to measure with them.
// Each setup has its own file of results.
type setup struct {
	name                   string        // for flags and file names
	phrase                 string        // names the servers in sentences, after "on"
	members                int           // number of ZooKeeper servers
	delay                  time.Duration // of each request and reply, by proxy
	sessionSeconds         int           // session timeout
	workloads, competitors []string
}

func (s setup) id() string { return s.name }

func setups() []setup {
	every := mapped(filter(workloads(), func(w workload) bool { return w.age == 0 }), workload.id)
	few := []string{"free", "contend-2", "contend-8", "queue-200", "readers", "pass"}
	some := []string{"dlock", "dlock-list", "zk.Lock", "curator", "curator-rw"}
	return []setup{
		{"one", "one server", 1, 0, 30, every, mapped(competitors(), competitor.id)},
		{"three", "an ensemble of three servers", 3, 0, 30, few, some},
		{"delayed", "one server behind a network delay", 1, time.Millisecond, 30, few, some},
		{"waited", "one server, with sessions of the default timeout of dlock", 1, 0, 10,
			[]string{"waited"}, []string{"dlock", "dlock-list", "zk.Lock", "curator"}},
	}
}

type workload struct {
	name   string // for flags and results
	title  string // on the page
	figure string // what is compared: p50, rate or won
	plan   work.Plan
	age    time.Duration // drain: how long contenders wait before the release
	cannot []string      // names of competitors that cannot do it
}

func (w workload) id() string { return w.name }

// waitingSessions is the number of sessions shared by a queue's contenders, so
// many that almost every hand-over goes to another session.
const waitingSessions = 20

// untimedGrants is the number of initial grants in a drain that are not
// measured, because they are slow on an idle machine, whatever the competitor.
const untimedGrants = 50

func workloads() []workload {
	loop := func(name, title string, sessions, contenders int) workload {
		return workload{name: name, title: title, figure: "rate",
			plan: work.Plan{Kind: work.Loop, Sessions: sessions, Contenders: contenders, Millis: 800}}
	}
	drain := func(name, title string, contenders int) workload {
		return workload{name: name, title: title, figure: "rate",
			plan: work.Plan{Kind: work.Drain, Sessions: waitingSessions, Contenders: untimedGrants + contenders, Untimed: untimedGrants}}
	}
	try := func(name, title, figure string, held bool) workload {
		return workload{name: name, title: title, figure: figure, cannot: []string{"zk.Lock"},
			plan: work.Plan{Kind: work.Try, Sessions: 8, Contenders: 8, Held: held, Millis: 700}}
	}
	free := loop("free", "a free lock", 1, 1)
	free.figure = "p50"
	readers := loop("readers", "8 sessions, 95% readers", 8, 8)
	readers.plan.Reads = 95
	readers.cannot = []string{"zk.Lock", "curator"} // have no shared lock
	waited := drain("waited", "200 have waited for 6 s, drained", 200)
	waited.age = 6 * time.Second
	waited.plan.Sessions = waited.plan.Contenders // long waiters usually have a session each
	return []workload{
		free,
		loop("contend-2", "2 sessions contend", 2, 2), loop("contend-8", "8 sessions contend", 8, 8), loop("contend-32", "32 sessions contend", 32, 32),
		drain("queue-100", "100 wait, drained", 100), drain("queue-200", "200 wait, drained", 200),
		drain("queue-400", "400 wait, drained", 400), drain("queue-1000", "1,000 wait, drained", 1000),
		readers,
		loop("process", "64 contenders of one process", 1, 64), loop("processes", "2 processes of 32 contenders", 2, 64),
		try("try-held", "tries of a lock that is held", "rate", true), try("try-free", "locks taken by trying", "won", false),
		{name: "pass", title: "from release to grant", figure: "p50", plan: work.Plan{Kind: work.Pass, Sessions: 2, Contenders: 2, Millis: 10, Count: 50}},
		waited,
	}
}

func (w workload) lessIsBetter() bool { return w.figure == "p50" }

func (w workload) suffix() string {
	if w.lessIsBetter() {
		return " us"
	}
	return "/s"
}

func (w workload) measures(c competitor) bool { return !slices.Contains(w.cannot, c.name) }
