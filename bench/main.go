// Command bench measures this library and other distributed locks side by side, on one machine and
// one server, and writes docs/benchmarks.md and the charts beside it:
//
//	make bench
//
// sets up what it needs and runs it with its defaults. Flags choose less; then the tables are
// printed and nothing is written, unless -write is given:
//
//	go run . -rounds 3 -workloads free,contend-8 -competitors dlock,zk.Lock
//
// With -against, an older revision of this repository takes part beside today's:
//
//	go run . -rounds 30 -against v1.2.3
//
// bench builds the revision in a temporary directory, prints the speed of today's
// library in relation to it, and exits with status 1 if that is below 0.95 in a
// workload with its whole 95% interval. Package work says what has to stay as it
// is for that.
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
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/dlock-go/dlock/bench/internal/stats"
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
	against                string
	write                  bool
}

func command(args []string) error {
	var o options
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	flags.IntVar(&o.Rounds, "rounds", 5, "how often everything is measured")
	flags.IntVar(&o.SessionSeconds, "session", 30, "timeout of sessions, in seconds")
	flags.StringVar(&o.workloads, "workloads", "", "only these, by commas: "+strings.Join(names(workloads(), func(w workload) string { return w.name }), " "))
	flags.StringVar(&o.competitors, "competitors", "", "only these, by commas: "+strings.Join(names(competitors(), func(c competitor) string { return c.name }), " "))
	flags.StringVar(&o.against, "against", "", "measure this older git revision of dlock, too; without -competitors, dlock and it only")
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
	if o.against != "" {
		if err := o.checkAgainst(); err != nil {
			return err
		}
		o.competitors = cmp.Or(o.competitors, "dlock")
	}
	taking, err := choose(competitors(), o.competitors, func(c competitor) string { return c.name })
	if err != nil {
		return err
	}
	if o.against != "" && !slices.ContainsFunc(taking, competitor.isOurs) {
		return errors.New("bench: -against has nothing to compare: add dlock to -competitors")
	}
	r := run{settings: o.settings, workloads: chosen, competitors: taking, against: o.against}
	found, err := r.execute(ctx)
	if err != nil {
		return err
	}
	if o.against != "" {
		report := newReport(found)
		fmt.Print(report.text(), report.against())
		return report.setback()
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

// checkAgainst returns an error if other flags do not go with -against.
func (o options) checkAgainst() error {
	if o.write {
		return errors.New("bench: -against does not go with -write: the page has no place for an older revision")
	}
	if o.Rounds < stats.LeastForInterval {
		return fmt.Errorf("bench: -against takes at least %d rounds for a 95%% interval: add -rounds 30", stats.LeastForInterval)
	}
	return nil
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
