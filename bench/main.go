// Command bench measures this library and other distributed locks side by side, on one machine and
// one server, and writes docs/benchmarks.md and the charts beside it:
//
//	make bench
//
// sets up what it needs and runs it with its defaults. Flags choose less; then the tables are
// printed and nothing is written, unless -write is given:
//
//	go run . -rounds 3 -workloads free,contend-8 -competitors dlock,zk.Lock
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
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
	settings
	workloads, competitors string
	docs, child, render    string
	write                  bool
}

func command(args []string) error {
	var o options
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	flags.IntVar(&o.Rounds, "rounds", 5, "how often everything is measured")
	flags.IntVar(&o.SessionSeconds, "session", 30, "timeout of sessions, in seconds")
	flags.StringVar(&o.workloads, "workloads", "", "only these, by commas: "+strings.Join(names(workloads(), func(w workload) string { return w.name }), " "))
	flags.StringVar(&o.competitors, "competitors", "", "only these, by commas: "+strings.Join(names(competitors(), func(c competitor) string { return c.name }), " "))
	flags.StringVar(&o.docs, "docs", "../docs", "the directory of benchmarks.md")
	flags.BoolVar(&o.write, "write", false, "write the report also if only a part was measured")
	flags.StringVar(&o.render, "render", "", "measure nothing: write the report from the results of an earlier run, a JSON file")
	flags.StringVar(&o.child, "child", "", "for the program itself: be the child that works with this library")
	_ = flags.Parse(args) // exits
	switch {
	case o.child != "":
		return work.Serve(o.child, os.Stdin, os.Stdout)
	case o.render != "":
		found, err := load(o.render)
		if err != nil {
			return err
		}
		return publish(found, o.docs)
	}
	return o.measure()
}

func (o options) measure() error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	chosen, err := choose(workloads(), o.workloads, func(w workload) string { return w.name })
	if err != nil {
		return err
	}
	taking, err := choose(competitors(), o.competitors, func(c competitor) string { return c.name })
	if err != nil {
		return err
	}
	r := run{settings: o.settings, workloads: chosen, competitors: taking}
	found, err := r.execute(ctx)
	if err != nil {
		return err
	}
	if o.workloads+o.competitors != "" && !o.write {
		fmt.Print(newReport(found).text())
		return nil
	}
	if err := os.MkdirAll(filepath.Join(o.docs, charts), 0o755); err != nil {
		return err
	}
	if err := found.save(filepath.Join(o.docs, charts, "results.json")); err != nil {
		return err
	}
	return publish(found, o.docs)
}

func names[T any](all []T, name func(T) string) (list []string) {
	for _, x := range all {
		list = append(list, name(x))
	}
	return list
}

// choose returns those that are named, in their own order.
func choose[T any](all []T, list string, name func(T) string) (chosen []T, err error) {
	if list == "" {
		return all, nil
	}
	wanted := map[string]bool{}
	for _, n := range strings.Split(list, ",") {
		wanted[strings.TrimSpace(n)] = true
	}
	for _, x := range all {
		if wanted[name(x)] {
			chosen = append(chosen, x)
			delete(wanted, name(x))
		}
	}
	if len(wanted) > 0 {
		return nil, errors.New("bench: unknown: " + strings.Join(keys(wanted), ", ") + "; known are " + strings.Join(names(all, name), ", "))
	}
	return chosen, nil
}
