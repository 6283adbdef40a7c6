module brokerstorm/kit

go 1.19

require golang.org/x/sys v0.5.0
