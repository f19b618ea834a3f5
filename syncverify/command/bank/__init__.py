"""The command `syncverify bank`: is each defect caught, and each twin left alone?"""
