package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/dlock-go/dlock"
)

const lsHelp = `Usage: dlock ls [flags] [PREFIX]

Lists the names of the locks that somebody holds or waits for, one on a line, in
lexical order. The PREFIX stock matches stock and stock/42, and not stocks.
Names that do not print, or contain spaces, are quoted. With -json, each line is
a JSON object with the field lock.

Exit status: 0, also if there is no such lock; 1, the store could not be reached
or failed; 2, the arguments are not valid.

Flags:
`

func ls(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	t := newTool("ls", lsHelp, "one prefix at most", args, stdout, stderr)
	t.flags.BoolVar(&t.json, "json", false, "print JSON")
	arguments, client, status := t.open(0, 1, dlock.WithReadOnly())
	if client == nil {
		return status
	}
	defer client.Close()
	ctx, cancel := t.limit(ctx)
	defer cancel()
	names, err := client.Walk(ctx, append(arguments, "")[0])
	if err != nil {
		return t.failed(err)
	}
	for _, name := range names {
		if t.json {
			_ = json.NewEncoder(stdout).Encode(map[string]string{"lock": name}) // output.status reports write errors
		} else {
			fmt.Fprintln(stdout, cell(name))
		}
	}
	return 0
}
