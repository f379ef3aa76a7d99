package simulation

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock/driver"
)

// alwaysAlone is a broken session that lists only the contender's own node, so
// that every call is granted the lock.
type alwaysAlone struct{ driver.Session }

func (s alwaysAlone) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.Session.Create(ctx, queue, n)
	j.Known, j.Ahead = true, nil
	return j, err
}

// silentWatch is a broken session whose watches never fire.
type silentWatch struct{ driver.Session }

func (s silentWatch) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	n.Predecessor = nil
	return s.Session.Create(ctx, queue, n)
}

func (s silentWatch) Watch(context.Context, string, driver.Place, ...driver.Node) (driver.Watch, error) {
	return driver.NewWatch(make(chan driver.Cause), nil), nil
}

// lazyDelete is a broken session that confirms a Delete but keeps the node.
type lazyDelete struct{ driver.Session }

func (s lazyDelete) Delete(context.Context, string, driver.Place, driver.Cause) error { return nil }

func TestABrokenStoreIsDetectedAndItsSeedIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		wrap func(driver.Session) driver.Session
		says string
	}{
		"two are let in":         {func(s driver.Session) driver.Session { return alwaysAlone{s} }, "behind"},
		"wake-ups are lost":      {func(s driver.Session) driver.Session { return silentWatch{s} }, "no end after"},
		"unlocking does nothing": {func(s driver.Session) driver.Session { return lazyDelete{s} }, "is there"},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(30) {
				var j *journal
				synctest.Test(t, func(t *testing.T) { j = play(t, seed, c.wrap) })
				if !strings.Contains(j.failure, c.says) {
					continue
				}
				said := report(seed, j)
				again := "go test ./internal/simulation -run=TestNoSeed -seeds=1 -seed="
				for _, want := range []string{j.failure, "holds p", "FAILED", again} {
					if !strings.Contains(said, want) {
						t.Errorf("the report does not say %q:\n%s", want, said)
					}
				}
				return
			}
			t.Errorf("30 seeds do not detect the broken store")
		})
	}
}
