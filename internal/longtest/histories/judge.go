package histories

import (
	"os"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/history"
)

// searchLimit bounds the check of one history. A check that takes longer fails.
var searchLimit = time.Minute

func search(r *history.Record) (porcupine.CheckResult, porcupine.LinearizationInfo) {
	var ops []porcupine.Operation
	for _, o := range r.Operations {
		ops = append(ops, forPorcupine(o))
	}
	return porcupine.CheckOperationsVerbose(model, ops, searchLimit)
}

func judge(t testing.TB, r *history.Record, dir string) {
	t.Helper()
	result, info := search(r)
	if result != porcupine.Ok {
		t.Errorf("%s, %s: the order of %d operations: %s", r.Of, r.Title, len(r.Operations), result)
	}
	for _, w := range r.Wrong {
		t.Errorf("%s, %s: %s", r.Of, r.Title, w)
	}
	if result != porcupine.Ok || len(r.Wrong) > 0 {
		t.Errorf("%s, %s: drawn in %s", r.Of, r.Title, draw(t, r, info, dir))
	}
}

func refused(r *history.Record) bool {
	result, _ := search(r)
	return result != porcupine.Ok || len(r.Wrong) > 0
}

func draw(t testing.TB, r *history.Record, info porcupine.LinearizationInfo, dir string) string {
	t.Helper()
	var notes []porcupine.Annotation
	for _, n := range r.Notes {
		notes = append(notes, porcupine.Annotation{
			Tag: n.Row, Start: n.From, End: n.To, BackgroundColor: n.Color, Description: n.Text, Details: n.Details,
		})
	}
	info.AddAnnotations(notes)
	f, err := os.CreateTemp(dir, "history-*.html")
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, porcupine.Visualize(model, info, f))
	return f.Name()
}
