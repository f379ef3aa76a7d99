package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// networkDelay is the one-way network delay in the setup "delayed".
const networkDelay = time.Millisecond

// setup describes the servers to measure with. Each setup has its own file of
// results.
type setup struct {
	name           string // for flags and file names
	phrase         string // names the servers in sentences, after the word "on"
	members        int    // number of ZooKeeper servers
	delayed        bool   // whether requests and replies take networkDelay longer
	sessionSeconds int    // session timeout
	// Names of the workloads and competitors to measure; empty means all.
	workloads, competitors []string
}

func (s setup) id() string { return s.name }

func setups() []setup {
	few := []string{"free", "contend-2", "contend-8", "queue-200", "readers", "pass"}
	some := []string{"dlock", "dlock-list", "zk.Lock", "curator", "curator-rw", "bare"}
	return []setup{
		{"one", "one server", 1, false, 30, nil, nil},
		{"three", "an ensemble of three servers", 3, false, 30, few, some},
		{"delayed", "one server behind a network delay", 1, true, 30, few, some},
		{"waited", "one server, with sessions of the default timeout of dlock", 1, false, 10,
			[]string{"waited", "waited-hold"}, []string{"dlock", "dlock-list", "zk.Lock", "curator"}},
	}
}

func setupNamed(name string) setup {
	all := setups()
	return all[slices.IndexFunc(all, func(s setup) bool { return s.name == name })]
}

func (s setup) hasWorkload(w workload) bool {
	if len(s.workloads) == 0 {
		return w.only == "" || w.only == s.name
	}
	return slices.Contains(s.workloads, w.name)
}

func (s setup) hasCompetitor(c competitor) bool {
	return len(s.competitors) == 0 || slices.Contains(s.competitors, c.name)
}

// runs returns a run for each chosen setup that has any of the chosen workloads
// and competitors.
func (o options) runs() (list []*run, err error) {
	chosen, err := choose(setups(), o.servers)
	if err != nil {
		return nil, err
	}
	loads, err := choose(workloads(), o.workloads)
	if err != nil {
		return nil, err
	}
	locks, err := choose(competitors(), o.competitors)
	if err != nil {
		return nil, err
	}
	if o.against != "" && !slices.ContainsFunc(locks, competitor.isOurs) {
		return nil, errors.New("bench: -against has nothing to compare: add dlock to -competitors")
	}
	for _, s := range chosen {
		r := &run{setup: s, rounds: o.rounds, workloads: filter(loads, s.hasWorkload), competitors: filter(locks, s.hasCompetitor)}
		if len(r.workloads) > 0 && len(r.competitors) > 0 {
			list = append(list, r)
		}
	}
	if len(list) == 0 {
		return nil, errors.New("bench: the chosen servers have none of the chosen workloads and competitors: choose others with -servers, -workloads or -competitors")
	}
	return list, nil
}

func filter[T any](all []T, keep func(T) bool) (kept []T) {
	for _, x := range all {
		if keep(x) {
			kept = append(kept, x)
		}
	}
	return kept
}

// choose returns the elements of all whose names are in list, which is
// comma-separated. An empty list means all.
func choose[T interface{ id() string }](all []T, list string) (chosen []T, err error) {
	if list == "" {
		return all, nil
	}
	wanted := strings.Split(list, ",")
	for i := range wanted {
		wanted[i] = strings.TrimSpace(wanted[i])
		if known := mapped(all, T.id); !slices.Contains(known, wanted[i]) {
			return nil, fmt.Errorf("bench: unknown: %s; known are %s", wanted[i], strings.Join(known, ", "))
		}
	}
	return filter(all, func(x T) bool { return slices.Contains(wanted, x.id()) }), nil
}

func mapped[T, U any](all []T, f func(T) U) (list []U) {
	for _, x := range all {
		list = append(list, f(x))
	}
	return list
}
