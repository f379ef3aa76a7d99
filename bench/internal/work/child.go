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
	open library
	team *team
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
		c.team, err = assemble(c.open, p)
		runtime.GC()
		return "ready", err
	case "go":
		if c.team == nil {
			return "", errors.New("bench: go without prepare")
		}
		report, err := c.team.measure()
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
	if c.team == nil {
		return nil
	}
	t := c.team
	c.team = nil
	return t.close()
}

// measure lets the contenders go and waits for them.
func (t *team) measure() (Report, error) {
	t.from = now()
	t.end = t.from.at.Add(time.Duration(t.plan.Millis) * time.Millisecond)
	close(t.begin)
	if t.plan.Kind == Drain {
		if err := t.holder.unlock(); err != nil {
			return Report{}, err
		}
	}
	t.done.Wait()
	seconds := time.Since(t.from.at).Seconds()
	after := used()
	if t.plan.Held {
		if err := t.holder.unlock(); err != nil {
			t.fail(err)
		}
	}
	return Report{
		Seconds: seconds, CPU: after.cpu - t.from.cpu, Allocs: after.allocs - t.from.allocs,
		Counts: t.counts, Tries: t.tries, Latencies: t.latencies,
	}, t.err
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
