module github.com/dlock-go/dlock/contrib/cmd

go 1.25.0

require github.com/dlock-go/dlock v0.1.0
