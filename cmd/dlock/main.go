// Command dlock shows what distributed read-write locks do. Run it without
// arguments to list its commands. It has the drivers for ZooKeeper and for memory;
// contrib/cmd/dlock has all drivers.
package main

import (
	"github.com/dlock-go/dlock/internal/command"
	_ "github.com/dlock-go/dlock/memdriver"
	_ "github.com/dlock-go/dlock/zkdriver"
)

func main() { command.Main() }
