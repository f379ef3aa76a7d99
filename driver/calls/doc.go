// Package calls makes calls of client libraries whose functions take no context.
// It helps authors of drivers to keep rule 10 of the contract: a method returns
// promptly when its context ends. It is not part of the contract.
package calls
