package memdriver

import (
	"context"
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

var (
	_ driver.Checker = (*Store)(nil)
	_ driver.Checker = connector{}
)

// fewSequences is the number of unused sequences below which Check warns.
const fewSequences = 1 << 20

// Check implements driver.Checker.
func (st *Store) Check(ctx context.Context) ([]driver.Finding, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("memdriver: check: %w", err)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	least, name := st.sequenceLimit, ""
	for n, q := range st.queues {
		if left := st.sequenceLimit - q.next; left < least {
			least, name = left, n
		}
	}
	f := driver.Finding{Text: fmt.Sprintf("every queue has room for at least %d more nodes; locks exclude only clients of this process", least)}
	if least < fewSequences {
		f.Level = driver.Warning
		f.Text = fmt.Sprintf("the queue %q has room for %d more nodes", name, least)
		f.Advice = "let no client hold or wait for this lock for a moment: then its sequences start over"
	}
	return []driver.Finding{f}, nil
}

// Check implements driver.Checker.
func (c connector) Check(ctx context.Context) ([]driver.Finding, error) { return c.store.Check(ctx) }
