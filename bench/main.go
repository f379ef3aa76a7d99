// Command bench measures this library and other distributed locks side by side on
// one machine. It writes the tables of docs/use/benchmarks.md. To set up what it
// needs and to run it with its defaults:
//
//	make bench
//
// If flags choose some workloads or competitors only, it prints all figures and
// writes nothing:
//
//	go run . -servers one,three -rounds 3 -workloads free,contend-8 -competitors dlock,zk.Lock
//
// With -against, an older revision of this repository takes part:
//
//	go run . -rounds 30 -against HEAD~30 -servers one
//
// For each workload, bench prints the current speed in relation to that revision,
// with a 95% interval. It exits with status 1 if an entire interval is below 0.95.
// Package work lists what has to stay compatible between revisions.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/dlock-go/dlock/bench/internal/work"
)

func main() {
	log.SetFlags(log.Ltime)
	if err := command(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

type options struct {
	rounds                          int
	servers, workloads, competitors string // names, separated by commas; empty for all
	against                         string // a git revision; may be empty
}

func command(args []string) error {
	var o options
	var child string
	var render bool
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	known := func(list []string) string {
		return "measure only these, separated by commas: " + strings.Join(list, " ")
	}
	flags.IntVar(&o.rounds, "rounds", 5, "how often each workload is measured")
	flags.StringVar(&o.servers, "servers", "", known(mapped(setups(), setup.id)))
	flags.StringVar(&o.workloads, "workloads", "", known(mapped(workloads(), workload.id)))
	flags.StringVar(&o.competitors, "competitors", "", known(mapped(competitors(), competitor.id)))
	flags.StringVar(&o.against, "against", "", "also measure this older git revision of dlock; without -competitors, measure dlock and it only")
	flags.BoolVar(&render, "render", false, "measure nothing: write the page from the results of earlier runs")
	flags.StringVar(&child, "child", "", "for bench itself: run as the child that works with this library")
	_ = flags.Parse(args) // exits after an error
	switch {
	case child != "":
		return work.Serve(child, os.Stdin, os.Stdout)
	case render:
		return publish(pageDir)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	return o.measure(ctx)
}

func (o options) measure(ctx context.Context) error {
	if o.against != "" {
		if o.rounds < minForInterval {
			return fmt.Errorf("bench: -against takes at least %d rounds for a 95%% interval: add -rounds 30", minForInterval)
		}
		o.competitors = cmp.Or(o.competitors, "dlock")
	}
	runs, err := o.runs()
	if err != nil {
		return err
	}
	if o.against != "" {
		dir, err := os.MkdirTemp("", "bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		older, err := build(ctx, o.against, dir)
		if err != nil {
			return err
		}
		for _, r := range runs {
			r.older, r.competitors = older.label, withOlder(r.competitors, older)
		}
	}
	var slower []error
	for _, r := range runs {
		if err := r.execute(ctx); err != nil {
			return err
		}
		if o.workloads+o.competitors == "" {
			if err := errors.Join(r.results().save(pageDir), publish(pageDir)); err != nil {
				return err
			}
			continue
		}
		fmt.Print(r.text())
		if r.older != "" {
			text, err := r.against()
			fmt.Print(text)
			slower = append(slower, err)
		}
	}
	return errors.Join(slower...)
}

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
		r := &run{setup: s, rounds: o.rounds}
		r.workloads = filter(loads, func(w workload) bool { return slices.Contains(s.workloads, w.name) })
		r.competitors = filter(locks, func(c competitor) bool { return slices.Contains(s.competitors, c.name) })
		if len(r.workloads) > 0 && len(r.competitors) > 0 {
			list = append(list, r)
		}
	}
	if len(list) == 0 {
		return nil, errors.New("bench: the chosen servers have none of the chosen workloads and competitors: choose others with -servers, -workloads or -competitors")
	}
	return list, nil
}

// choose returns the elements that the comma-separated list names, or all
// elements if the list is empty.
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

func filter[T any](all []T, keep func(T) bool) (kept []T) {
	for _, x := range all {
		if keep(x) {
			kept = append(kept, x)
		}
	}
	return kept
}

func mapped[T, U any](all []T, f func(T) U) (list []U) {
	for _, x := range all {
		list = append(list, f(x))
	}
	return list
}
