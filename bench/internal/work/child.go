package work

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Serve obeys orders until they end.
func Serve(libraryName string, orders io.Reader, answers io.Writer) error {
	open, err := find(libraryName)
	if err != nil {
		return err
	}
	c := child{open: open}
	defer c.finish()
	lines := bufio.NewScanner(orders)
	for lines.Scan() {
		answer, err := c.obey(lines.Text())
		if err != nil {
			answer = "error " + strings.ReplaceAll(err.Error(), "\n", "; ")
		}
		if _, err := fmt.Fprintln(answers, answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

type child struct {
	open  library
	round *round
}

func (c *child) obey(line string) (answer string, err error) {
	order, argument, _ := strings.Cut(line, " ")
	switch order {
	case "prepare":
		var p Plan
		// This child would not do what a field asks for that it does not know.
		d := json.NewDecoder(strings.NewReader(argument))
		d.DisallowUnknownFields()
		if err := d.Decode(&p); err != nil {
			return "", err
		}
		c.round, err = openRound(c.open, p)
		runtime.GC()
		return "ready", err
	case "go":
		if c.round == nil {
			return "", errors.New("bench: go without prepare")
		}
		report, err := c.round.measure()
		if err != nil {
			return "", err
		}
		text, err := json.Marshal(report)
		return "report " + string(text), err
	case "end":
		return "ended", c.finish()
	}
	return "", fmt.Errorf("bench: unknown order %q", order)
}

func (c *child) finish() error {
	if c.round == nil {
		return nil
	}
	r := c.round
	c.round = nil
	return r.close()
}

// measure lets the contenders go and waits for them.
func (r *round) measure() (Report, error) {
	r.timedFrom = now()
	r.deadline = r.timedFrom.at.Add(time.Duration(r.plan.Millis) * time.Millisecond)
	close(r.started)
	if r.plan.Kind == Drain {
		if err := r.holder.unlock(); err != nil {
			return Report{}, err
		}
	}
	r.running.Wait()
	seconds := time.Since(r.timedFrom.at).Seconds()
	after := used()
	if r.plan.Held {
		if err := r.holder.unlock(); err != nil {
			r.fail(err)
		}
	}
	return Report{
		Seconds: seconds, CPU: after.cpu - r.timedFrom.cpu, Allocs: after.allocs - r.timedFrom.allocs,
		Counts: r.counts, Tries: r.tries, Latencies: r.latencies,
	}, r.err
}

// usage is what the process has used so far.
type usage struct {
	cpu    float64
	allocs int64
}

// mark is a moment, and what had been used by then.
type mark struct {
	usage
	at time.Time
}

func now() mark { return mark{usage: used(), at: time.Now()} }

func used() usage {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err) // there is no such error for one's own process
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{
		cpu:    time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds(),
		allocs: int64(m.Mallocs),
	}
}
