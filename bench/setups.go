package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// setup is what the locks are measured on: ZooKeeper servers, and the network
// in front of them. Each setup is measured separately and has its own results.
type setup struct {
	name    string // the name that flags and file names use
	phrase  string // what follows "on" in a sentence about the setup, such as "one server"
	members int    // number of ZooKeeper servers that form an ensemble; 1 for a single server
	delayed bool   // clients reach the servers through a network with the delay settings.Delay
	// sessionSeconds is the timeout of the sessions; 0 stands for that of the settings.
	sessionSeconds   int
	describesMachine bool // the page describes the machine as of this setup's run
	// workloads and competitors name those that are measured. An empty list stands for
	// all.
	workloads, competitors []string
}

func setups() []setup {
	few := []string{"free", "contend-2", "contend-8", "queue-200", "readers", "pass"}
	some := []string{"dlock", "dlock-list", "zk.Lock", "curator", "curator-rw", "bare"}
	return []setup{
		{name: "one", phrase: "one server", members: 1, describesMachine: true},
		{name: "three", phrase: "an ensemble of three servers", members: 3, workloads: few, competitors: some},
		{name: "delayed", phrase: "one server behind a network delay", members: 1, delayed: true, workloads: few, competitors: some},
		{name: "waited", phrase: "one server, with sessions of the default timeout of dlock", members: 1, sessionSeconds: 10,
			workloads: []string{"waited", "waited-hold"}, competitors: []string{"dlock", "dlock-list", "zk.Lock", "curator"}},
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

// runs returns one run for each chosen setup that has any of the chosen workloads and
// competitors.
func (o options) runs() (list []*run, err error) {
	chosen, err := choose(setups(), o.servers, func(s setup) string { return s.name })
	if err != nil {
		return nil, err
	}
	loads, err := choose(workloads(), o.workloads, func(w workload) string { return w.name })
	if err != nil {
		return nil, err
	}
	locks, err := choose(competitors(), o.competitors, func(c competitor) string { return c.name })
	if err != nil {
		return nil, err
	}
	if o.against != "" && !slices.ContainsFunc(locks, competitor.isOurs) {
		return nil, errors.New("bench: -against has nothing to compare: add dlock to -competitors")
	}
	for _, s := range chosen {
		r := &run{setup: s, settings: o.settings, workloads: filter(loads, s.hasWorkload), competitors: filter(locks, s.hasCompetitor)}
		if !s.delayed {
			r.settings.Delay = 0
		}
		if s.sessionSeconds > 0 {
			r.settings.SessionSeconds = s.sessionSeconds
		}
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

// choose picks elements of the slice all by their names. The text list holds
// the wanted names, separated by commas. The result has the order of the slice.
// If list is empty, the result is the whole slice.
func choose[T any](all []T, list string, name func(T) string) (chosen []T, err error) {
	if list == "" {
		return all, nil
	}
	wanted := map[string]bool{}
	for _, n := range strings.Split(list, ",") {
		wanted[strings.TrimSpace(n)] = true
	}
	chosen = filter(all, func(x T) bool { return wanted[name(x)] })
	for _, x := range chosen {
		delete(wanted, name(x))
	}
	if len(wanted) > 0 {
		return nil, fmt.Errorf("bench: unknown: %s; known are %s", strings.Join(keys(wanted), ", "), strings.Join(mapped(all, name), ", "))
	}
	return chosen, nil
}

func mapped[T, U any](all []T, f func(T) U) (list []U) {
	for _, x := range all {
		list = append(list, f(x))
	}
	return list
}
