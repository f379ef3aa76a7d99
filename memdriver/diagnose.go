package memdriver

import (
	"context"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/diagnose"
)

// Diagnose implements driver.Diagnoser.
func (st *Store) Diagnose(ctx context.Context, report func(driver.Finding)) error {
	return st.diagnose(ctx, st, st.timeout, report)
}

func (c connector) Diagnose(ctx context.Context, report func(driver.Finding)) error {
	return c.store.diagnose(ctx, c, c.timeout, report)
}

func (st *Store) diagnose(ctx context.Context, c driver.Connector, timeout time.Duration, report func(driver.Finding)) error {
	return diagnose.Run(ctx, diagnose.Store{
		Connector: c, Timeout: timeout, Local: "the memory of this process",
		Inspect: func(_ context.Context, _ driver.Session, report func(driver.Finding)) {
			report(driver.Finding{Check: driver.CheckSettings, Text: "there is no server; locks exclude only clients of this process"})
			report(st.checkSequences())
		},
		Remove: func(_ context.Context, _ driver.Session, queue string) error {
			st.mu.Lock()
			defer st.mu.Unlock()
			if q := st.queues[queue]; q != nil && len(q.nodes) == 0 {
				st.forget(q)
			}
			return nil
		},
	}, report)
}

// fewSequences is the number of unused sequences below which the diagnosis
// warns of a queue.
const fewSequences = 1 << 20

func (st *Store) checkSequences() driver.Finding {
	st.mu.Lock()
	defer st.mu.Unlock()
	least, name := st.sequenceLimit, ""
	for n, q := range st.queues {
		if left := st.sequenceLimit - q.next; left < least {
			least, name = left, n
		}
	}
	f := driver.Finding{Check: driver.CheckSequences, Text: fmt.Sprintf("every queue has room for at least %d more nodes", least)}
	if least < fewSequences {
		f.Level = driver.Warning
		f.Text = fmt.Sprintf("the queue %q has room for %d more nodes", name, least)
		f.Advice = "let no client hold or wait for this lock for a moment: then its sequences start over"
	}
	return f
}
