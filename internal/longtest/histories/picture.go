package histories

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
)

// searchLimit is how long Porcupine may search for an order of the operations
// that the model allows. A search takes milliseconds in most cases. A search
// that does not end in time counts as a failure, because then it is unknown
// whether there is such an order.
var searchLimit = time.Minute

// judge fails the test if the history is not linearizable or breaks another
// rule. It draws a history that is not linearizable. It returns the operations
// of the history.
func judge(t testing.TB, title string, r *recorder, wrong []string) []porcupine.Operation {
	t.Helper()
	ops, unexplained := r.history()
	result, info := porcupine.CheckOperationsVerbose(model, ops, searchLimit)
	wrong = append(append(wrong, unexplained...), r.breaches()...)
	if result != porcupine.Ok {
		t.Errorf("%s: the order of %d operations: %s", title, len(ops), result)
	}
	for _, w := range wrong {
		t.Errorf("%s: %s", title, w)
	}
	if result != porcupine.Ok || len(wrong) > 0 {
		t.Errorf("%s: drawn in %s", title, draw(t, r, info))
	}
	return ops
}

// verdict returns what is wrong with a history, or nothing.
func verdict(r *recorder, wrong []string) []string {
	ops, unexplained := r.history()
	if result := porcupine.CheckOperationsTimeout(model, ops, searchLimit); result != porcupine.Ok {
		wrong = append(wrong, fmt.Sprintf("the order of %d operations: %s", len(ops), result))
	}
	return append(append(wrong, unexplained...), r.breaches()...)
}

// linearizable reports whether the model allows an order of the operations, and
// each loss has a cause.
func linearizable(r *recorder) bool {
	ops, unexplained := r.history()
	return porcupine.CheckOperationsTimeout(model, ops, searchLimit) == porcupine.Ok && len(unexplained) == 0
}

// draw writes a picture of a history and returns the name of its file. The
// picture also shows the faults, and which contender held the lock when, as the
// contender saw it.
func draw(t testing.TB, r *recorder, info porcupine.LinearizationInfo) string {
	t.Helper()
	info.AddAnnotations(r.annotations())
	f, err := os.CreateTemp(os.Getenv("DLOCK_HISTORY_DIR"), "history-*.html")
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, porcupine.Visualize(model, info, f))
	return f.Name()
}

const (
	faultColor     = "#f4b6b6"
	sharedColor    = "#b6e3f4"
	exclusiveColor = "#f4e3b6"
)

func (r *recorder) annotations() (all []porcupine.Annotation) {
	add := func(tag string, at span, color, description, details string) {
		all = append(all, porcupine.Annotation{
			Tag: tag, Start: at.call, End: min(at.ret, r.clock+1), BackgroundColor: color, Description: description, Details: details,
		})
	}
	for _, c := range r.causes {
		add("faults", c.span, faultColor, c.what, fmt.Sprintf("client %d, queue %q, node %q", c.slot, c.queue, c.node))
	}
	for _, c := range r.contenders {
		color := sharedColor
		if c.mode == dlock.Exclusive {
			color = exclusiveColor
		}
		end := c.givenBack()
		if c.learned != 0 {
			end = min(end, c.learned)
		}
		add(fmt.Sprint("client ", c.client.slot), span{c.granted.ret, max(c.granted.ret, end)}, color,
			fmt.Sprintf("#%d of %s: %v, token %d", c.id, c.queue, c.mode, c.token), fmt.Sprintf("node %s, %d Locks", c.node, len(c.handles)))
	}
	for _, a := range r.attempts {
		if a.err != nil {
			add(fmt.Sprint("client ", a.client.slot), a.span, "", a.String(), a.err.Error())
		}
	}
	return all
}
