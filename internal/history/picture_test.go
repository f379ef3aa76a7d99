package history

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// patience is how long the search for an order may take. It takes milliseconds.
const patience = 30 * time.Second

// judge fails the test if the history is not linearizable, and draws it then. It returns how many
// operations it has looked at.
func judge(t testing.TB, title string, r *recorder) int {
	t.Helper()
	ops, unexplained := r.history()
	result, info := porcupine.CheckOperationsVerbose(model, ops, patience)
	if result != porcupine.Ok {
		t.Errorf("%s: the order of %d operations: %s; drawn in %s", title, len(ops), result, draw(t, r, info))
	}
	for _, u := range unexplained {
		t.Errorf("%s: %s", title, u)
	}
	return len(ops)
}

// linearizable is judge without the test.
func linearizable(r *recorder) bool {
	ops, unexplained := r.history()
	return porcupine.CheckOperationsTimeout(model, ops, patience) == porcupine.Ok && len(unexplained) == 0
}

// draw writes a picture of a history and returns the name of its file.
func draw(t testing.TB, r *recorder, info porcupine.LinearizationInfo) string {
	t.Helper()
	var notes []porcupine.Annotation
	for _, c := range r.causes {
		notes = append(notes, porcupine.Annotation{
			Tag: "causes", Start: c.call, End: min(c.ret, r.clock), Description: c.what,
			Details: fmt.Sprintf("client %d, queue %q, node %q", c.client, c.queue, c.node),
		})
	}
	info.AddAnnotations(notes)
	f, err := os.CreateTemp(os.Getenv("DLOCK_HISTORY_DIR"), "history-*.html")
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, porcupine.Visualize(model, info, f))
	return f.Name()
}
