package dlocktest

import (
	"context"
	"errors"
	"slices"

	"github.com/dlock-go/dlock/driver"
)

func (c *check) wantAlive(s session, after string) {
	if err := s.Err(); err != nil {
		c.fatalf("the session ended after %s: Err returned %q, expected nil", after, err)
	}
}

func (c *check) wantNodes(what string, got []driver.Node, want ...driver.Node) {
	if !slices.Equal(got, want) {
		c.fatalf("%s: List returned %v, expected %v", what, got, want)
	}
}

func (c *check) wantAhead(j driver.Joined, want ...driver.Node) {
	if j.Known && !slices.Equal(j.Ahead, want) {
		c.errorf("Create of %s returned the nodes ahead %v, expected %v, as List returns them", j.Name, j.Ahead, want)
	}
	if !j.Known && len(j.Ahead) > 0 {
		c.errorf("Create of %s returned the nodes ahead %v with Known false, expected none", j.Name, j.Ahead)
	}
}

func checkName(c *check, p driver.Place, prefix string) {
	got, seq, ok := driver.ParseName(p.Name)
	if want := driver.FormatName(prefix, max(p.Seq, 0)); !ok || got != prefix || seq != p.Seq || p.Name != want {
		c.errorf("Create with prefix %q returned the node %q with Seq %d, expected %q, the prefix and that sequence in 10 to 18 digits",
			prefix, p.Name, p.Seq, want)
	}
}

func (c *check) wantError(what string, err, want error) {
	switch {
	case !errors.Is(err, want):
		c.errorf("%s returned %v, expected an error that matches %v", what, err, want)
	case errors.Is(err, driver.ErrUnavailable):
		c.errorf("%s returned %q, which matches ErrUnavailable: a Lock would repeat it for ever", what, err)
	}
}

func (c *check) wantName(what string, err error) { c.wantError(what, err, driver.ErrBadName) }

func (c *check) wantGone(what string, err error) {
	c.wantError(what+" of a node that is gone", err, driver.ErrGone)
}

func (c *check) wantDeleted(what string, err error) {
	if err != nil && !errors.Is(err, driver.ErrGone) {
		c.errorf("%s after a Delete of the node that succeeded returned %q, expected nil or an error that matches ErrGone", what, err)
	}
}

func (c *check) wantEnded(what string, err error) {
	if !errors.Is(err, driver.ErrSessionEnded) {
		c.fatalf("after the end of the session %s returned %v, expected an error that matches ErrSessionEnded", what, err)
	}
}

// calls returns functions that each call one method of s. It omits optional
// methods that the driver does not support.
func (c *check) calls(ctx context.Context, s session, queue string, p driver.Place) map[string]func() error {
	all := map[string]func() error{
		"Create":                  func() error { _, err := tryCreate(ctx, s, queue, writer); return err },
		"Create with Predecessor": func() error { _, err := tryJoin(ctx, s, queue, writer, last); return err },
		"List":                    func() error { _, err := s.List(ctx, queue); return err },
		"Watch":                   func() error { _, err := s.Watch(ctx, queue, p); return err },
		"WatchQueue":              func() error { _, err := s.WatchQueue(ctx, queue); return err },
		"Delete":                  func() error { return s.Delete(ctx, queue, p, driver.Changed) },
		"Replace":                 func() error { _, err := s.Replace(ctx, queue, p, shared); return err },
		"Read":                    func() error { _, err := driver.Inspect(s).Read(ctx, queue, p.Name); return err },
		"Walk":                    func() error { _, err := driver.Inspect(s).Walk(ctx, ""); return err },
		"SetValue":                func() error { return driver.Inspect(s).SetValue(ctx, queue, p, []byte("value")) },
		"Value":                   func() error { _, _, err := driver.Inspect(s).Value(ctx, queue); return err },
		"Remove":                  func() error { return driver.Inspect(s).Remove(ctx, queue, p) },
	}
	for name, n := range map[string]need{"Read": needRead, "Walk": needWalk, "SetValue": needValue, "Value": needValue, "Remove": needRemove} {
		if c.can&n == 0 {
			delete(all, name)
		}
	}
	return all
}

func checkEnded(c *check, s session, p driver.Place) {
	for name, call := range c.calls(c.ctx, s, "q", p) {
		c.wantEnded(name, call())
	}
	for range 3 {
		c.wantEnded("Err", s.Err())
	}
	if !closed(s.Done()) {
		c.errorf("Done is open after Err returned %v, expected it to be closed", s.Err())
	}
}

func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
