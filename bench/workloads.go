package main

import (
	"slices"

	"github.com/dlock-go/dlock/bench/internal/work"
)

// workload is one thing that is measured with every competitor that can do it.
type workload struct {
	name string // in file names, flags and the page's marks
	unit string // what is counted, in the plural
	plan work.Plan
	// without names competitors that cannot do it, and why.
	without map[string]string
}

// waitingSessions is how many sessions the contenders of a queue are spread over: many enough that
// almost every hand-over goes from one session to another, few enough for one machine.
const waitingSessions = 20

// lead is how many are let in first, in a drain, before it is timed: machine and server come from rest, and take that
// long to wake up, whoever's lock it is.
const lead = 50

const noShared = "has no shared lock"

func workloads() []workload {
	loop := func(name string, sessions, contenders int) workload {
		return workload{name: name, unit: "acquisitions", plan: work.Plan{Kind: work.Loop, Sessions: sessions, Contenders: contenders, Millis: 800}}
	}
	drain := func(name string, contenders int) workload {
		return workload{name: name, unit: "hand-overs", plan: work.Plan{Kind: work.Drain, Sessions: waitingSessions, Contenders: lead + contenders, Untimed: lead}}
	}
	free := loop("free", 1, 1)
	readers := loop("readers", 8, 8)
	readers.plan.Reads = 95
	readers.without = map[string]string{"zk.Lock": noShared, "curator": noShared, "etcd": noShared}
	list := []workload{
		free, loop("contend-2", 2, 2), loop("contend-8", 8, 8), loop("contend-32", 32, 32),
		drain("queue-100", 100), drain("queue-200", 200), drain("queue-400", 400), drain("queue-1000", 1000),
		readers,
		loop("process", 1, 64), loop("processes", 2, 64),
		{name: "try-held", unit: "tries", plan: work.Plan{Kind: work.Try, Sessions: 8, Contenders: 8, Held: true, Millis: 700}},
		{name: "try-free", unit: "tries", plan: work.Plan{Kind: work.Try, Sessions: 8, Contenders: 8, Millis: 700}},
		{name: "pass", unit: "hand-overs", plan: work.Plan{Kind: work.Pass, Sessions: 2, Contenders: 2, Millis: 10, Count: 50}},
	}
	for i := range list {
		if w := &list[i]; w.plan.Kind == work.Try {
			w.without = map[string]string{"zk.Lock": "has no try"}
		}
	}
	return list
}

// can tells whether the competitor takes part.
func (w workload) can(c competitor) bool {
	_, not := w.without[c.name]
	return !not && w.meantFor(c)
}

func (w workload) meantFor(c competitor) bool {
	return len(c.only) == 0 || slices.Contains(c.only, w.name)
}
